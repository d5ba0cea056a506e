"""Reads a large range as several requests at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from stoker.storage.daemon_pool import DaemonPool
from stoker.storage.peek import PeekingStore
from stoker.storage.ranges import ByteRange, split
from stoker.storage.store import ObjectInfo

PART_BYTES = 8 << 20
MAX_REQUESTS = 8


class ParallelStore:
    """Wraps a store of high latency: ranges above ``part_bytes`` are cut, and each part is read (and retried) alone.

    The threads live for one call, which joins them: nothing outlives a read, and nothing is lost in a fork.
    """

    def __init__(self, inner: PeekingStore, *, part_bytes: int = PART_BYTES, max_requests: int = MAX_REQUESTS) -> None:
        self._inner = inner
        self._part_bytes = part_bytes
        self._max_requests = max_requests

    def head(self, url: str) -> ObjectInfo:
        return self._inner.head(url)

    def list(self, prefix: str, *, max_depth: int | None = None) -> Iterator[ObjectInfo]:
        return self._inner.list(prefix, max_depth=max_depth)

    def peek(self, folder: str) -> Sequence[str]:
        return self._inner.peek(folder)

    def read(self, url: str, start: int, stop: int, version: str = "") -> memoryview:
        """Exactly ``[start, stop)``, read-only; one copy more than a small read, into one buffer."""
        if stop - start <= self._part_bytes:
            return self._inner.read(url, start, stop, version)
        parts = split(ByteRange(start, stop), self._part_bytes)
        joined = np.empty(stop - start, np.uint8)

        def fetch(part: ByteRange) -> None:
            body = self._inner.read(url, part.start, part.stop, version)
            joined[part.start - start : part.stop - start] = np.frombuffer(body, np.uint8)

        with DaemonPool(min(len(parts), self._max_requests), "stoker-read-part") as threads:
            for outcome in [threads.submit(fetch, part) for part in parts]:
                outcome.result()
        return joined.data.toreadonly()

    def write(self, url: str, payload: bytes) -> None:
        self._inner.write(url, payload)
