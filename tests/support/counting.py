"""Stores round a real store that count what is read, or spoil what is answered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from stoker.storage.open import open_store
from stoker.storage.store import ObjectInfo, Store


@dataclass
class CountingStore:
    """Passes everything on to a real store and keeps the ranges that were read. Safe for many threads.

    ``spoil`` may change an answer: it gets the URL, the start, the bytes and how often this range was read before.
    """

    store: Store
    spoil: Callable[[str, int, bytes, int], bytes] = lambda _url, _start, content, _times: content
    num_listings: int = 0
    reads: list[tuple[str, int, int]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def num_bytes(self) -> int:
        return sum(stop - start for _, start, stop in self.reads)

    def urls_read(self, suffix: str = "") -> set[str]:
        return {url for url, _, _ in self.reads if url.endswith(suffix)}

    def head(self, url: str) -> ObjectInfo:
        return self.store.head(url)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self.num_listings += 1
        return self.store.list(prefix)

    def read(self, url: str, start: int, stop: int, version: str = "") -> memoryview:
        with self._lock:
            times = self.reads.count((url, start, stop))
            self.reads.append((url, start, stop))
        return memoryview(self.spoil(url, start, bytes(self.store.read(url, start, stop, version)), times))

    def write(self, url: str, payload: bytes) -> None:
        self.store.write(url, payload)


@dataclass
class Opener:
    """For ``Access``: every store it opens is the one in ``store``."""

    spoil: Callable[[str, int, bytes, int], bytes] = lambda _url, _start, content, _times: content
    store: CountingStore = field(init=False)

    def __call__(self, url: str, options: Mapping[str, str]) -> CountingStore:
        self.store = CountingStore(open_store(url, options), self.spoil)
        return self.store
