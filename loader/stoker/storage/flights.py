"""One request for a range that several ask for at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from stoker.storage.fork_news import tell_after_fork
from stoker.storage.peek import PeekingStore
from stoker.storage.store import ObjectInfo

_Key = tuple[str, int, int, str]


@dataclass(slots=True, eq=False)
class _Flight:
    """A read under way; ``landed`` is made by the first who waits for it, as it costs more than all else here."""

    landed: Future[memoryview | None] | None = None


class FlightStore:
    """Wraps a store: who asks for a range that is being read waits for that read, and gets the same bytes.

    If that read fails, or takes longer than ``patience_s``, those who wait read for themselves.
    """

    def __init__(self, inner: PeekingStore, patience_s: float) -> None:
        self._inner = inner
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._flights: dict[_Key, _Flight] = {}
        tell_after_fork(self)

    def after_fork(self) -> None:
        """In a child: the reads under way are those of its parent's threads."""
        self._lock = threading.Lock()
        self._flights = {}

    def head(self, url: str) -> ObjectInfo:
        return self._inner.head(url)

    def list(self, prefix: str, *, max_depth: int | None = None) -> Iterator[ObjectInfo]:
        return self._inner.list(prefix, max_depth=max_depth)

    def peek(self, folder: str) -> Sequence[str]:
        return self._inner.peek(folder)

    def write(self, url: str, payload: bytes) -> None:
        self._inner.write(url, payload)

    def read(self, url: str, start: int, stop: int, version: str = "") -> memoryview:
        """Exactly ``[start, stop)``; the same read-only memory for all who asked meanwhile."""
        key = (url, start, stop, version)
        own = _Flight()
        with self._lock:
            flight = self._flights.setdefault(key, own)
            if flight is not own and flight.landed is None:
                flight.landed = Future()
        if flight is own:
            return self._lead(key, own)
        try:
            body = flight.landed.result(self._patience_s) if flight.landed is not None else None
        except TimeoutError:
            body = None
        return self._inner.read(url, start, stop, version) if body is None else body

    def _lead(self, key: _Key, flight: _Flight) -> memoryview:
        body: memoryview | None = None
        try:
            body = self._inner.read(*key)
            return body
        finally:
            with self._lock:
                self._flights.pop(key, None)  # a fork has none
            if flight.landed is not None:
                flight.landed.set_result(body)
