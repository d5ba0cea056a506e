"""A view of a shard that moves forward and reads ahead."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future

WINDOW_BYTES = 8 << 20

Read = Callable[[int, int], memoryview]


class Window:
    """The bytes of a shard from some position on; ``end`` is how far they have been read.

    With ``ahead`` the next range is on its way while this one is looked at. ``on_fresh`` is given each piece with its
    position, once it is needed. Owned by one thread; positions only grow.
    """

    def __init__(
        self,
        read: Read,
        size: int,
        ahead: Executor | None = None,
        span: int = WINDOW_BYTES,
        on_fresh: Callable[[int, memoryview], None] | None = None,
    ) -> None:
        self._read = read
        self._on_fresh = on_fresh
        self._size = size
        self._ahead = ahead
        self._span = span
        self._start = 0
        self._bytes = memoryview(b"")
        self._next: tuple[int, Future[memoryview]] | None = None
        self.end = 0

    def at(self, position: int, num_bytes: int) -> memoryview:
        """At least ``num_bytes`` from ``position`` on, fewer only at the end of the shard."""
        if min(position + num_bytes, self._size) > self.end or position >= self.end:
            self._move(position, num_bytes)
        return self._bytes[position - self._start :]

    def close(self) -> None:
        """Wait for the range that is on its way."""
        if self._next is not None and not self._next[1].cancel():
            self._next[1].exception()
        self._next = None

    def _move(self, position: int, num_bytes: int) -> None:
        kept = self._bytes[position - self._start :] if position < self.end else memoryview(b"")
        start = position + len(kept)
        stop = min(self._size, max(start + self._span, position + num_bytes))
        fresh = self._fetch(start, stop)
        if self._on_fresh is not None:
            self._on_fresh(start, fresh)
        self._bytes = memoryview(b"".join((kept, fresh))) if kept else fresh
        self._start, self.end = position, start + len(fresh)
        if self._ahead is not None and self.end < self._size:
            following = self.end, min(self._size, self.end + self._span)
            self._next = self.end, self._ahead.submit(self._read, *following)

    def _fetch(self, start: int, stop: int) -> memoryview:
        if start >= stop:
            return memoryview(b"")
        if self._next is not None:
            known_start, coming = self._next
            self._next = None
            if known_start == start:
                return coming.result()
            coming.cancel()
        return self._read(start, stop)
