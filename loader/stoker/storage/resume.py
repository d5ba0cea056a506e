"""Keeps what came of a body that broke off, so that only the rest is asked for."""

from __future__ import annotations


class Progress:
    """One read of ``[start, stop)`` over all its attempts; belongs to the reading thread.

    The next attempt is to read ``[position, stop)`` of ``version``: that of the bytes kept, whatever the caller named.
    """

    def __init__(self, start: int, version: str) -> None:
        self.position = start
        self.version = version
        self._start = start
        self._asked_version = version
        self._kept: list[memoryview] = []

    @property
    def has_kept(self) -> bool:
        return bool(self._kept)

    def keep(self, body: memoryview, version: str) -> None:
        """Keep the good beginning of what was asked for."""
        self._kept.append(body)
        self.position += len(body)
        self.version = version

    def forget(self) -> None:
        """Begin again, at the version that the caller named."""
        self._kept.clear()
        self.position = self._start
        self.version = self._asked_version

    def finish(self, body: memoryview) -> memoryview:
        """The whole, of what was kept and the rest; copied only if something was kept."""
        return memoryview(b"".join((*self._kept, body))) if self._kept else body
