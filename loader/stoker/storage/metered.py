"""Counts every request that goes to a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from stoker.errors import StorageError
from stoker.storage.meter import Meter
from stoker.storage.peek import PeekingStore
from stoker.storage.retry import CorruptAnswerError, CutAnswerError, ThrottledError
from stoker.storage.store import ObjectInfo

T = TypeVar("T")


class MeteredStore:
    """Wraps a store whose calls are single attempts, so each attempt is counted, hedges and retries too."""

    def __init__(self, inner: PeekingStore, meter: Meter, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._inner = inner
        self._meter = meter
        self._clock = clock

    def head(self, url: str) -> ObjectInfo:
        return self._counted(lambda: self._inner.head(url))

    def list(self, prefix: str, *, max_depth: int | None = None) -> Iterator[ObjectInfo]:
        return iter(self._counted(lambda: list(self._inner.list(prefix, max_depth=max_depth))))

    def peek(self, folder: str) -> Sequence[str]:
        return self._counted(lambda: self._inner.peek(folder))

    def read(self, url: str, start: int, stop: int, version: str = "") -> memoryview:
        begin_s = self._clock()
        try:
            body = self._inner.read(url, start, stop, version)
        except StorageError as error:
            self._count(error)
            raise
        self._meter.answered(len(body), self._clock() - begin_s)
        return body

    def write(self, url: str, payload: bytes) -> None:
        self._counted(lambda: self._inner.write(url, payload))

    def _counted(self, ask: Callable[[], T]) -> T:
        try:
            answer = ask()
        except StorageError as error:
            self._count(error)
            raise
        self._meter.answered()
        return answer

    def _count(self, error: StorageError) -> None:
        self._meter.failed(
            len(error.body) if isinstance(error, CutAnswerError) else 0,
            throttled=isinstance(error, ThrottledError),
            corrupt=isinstance(error, CorruptAnswerError),
        )
