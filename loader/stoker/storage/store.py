"""The one interface to storage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object as a listing shows it. ``version`` is an ETag, or a modification time, or empty if unknown."""

    url: str
    size_bytes: int
    version: str


@dataclass(frozen=True, slots=True)
class ObjectRange:
    """The bytes ``[start, stop)`` of one version of one object; what caches and planners deal in.

    ``version`` is as in :class:`ObjectInfo`; empty if unknown, and then nothing of it is kept. ``endpoint`` says which
    server is meant where the URL alone does not.
    """

    url: str
    start: int
    stop: int
    version: str = ""
    endpoint: str = ""

    @property
    def num_bytes(self) -> int:
        return self.stop - self.start


class Store(Protocol):
    """Blocking access to the objects below one root, safe to call from many threads.

    Every method takes full URLs, has a deadline, retries what is transient, and raises only errors of
    ``stoker.errors``, whose text names the URL.
    """

    def head(self, url: str) -> ObjectInfo: ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """All objects whose URL begins with ``prefix``, recursively, sorted by URL."""
        ...

    def read(self, url: str, start: int, stop: int, version: str = "") -> memoryview:
        """Exactly the bytes ``[start, stop)``; a shorter answer is retried, then TransientError.

        Raises ChangedError if it can be told that the object is not of ``version`` any more; "" is any.
        """
        ...

    def write(self, url: str, payload: bytes) -> None:
        """Put a whole object, atomically."""
        ...
