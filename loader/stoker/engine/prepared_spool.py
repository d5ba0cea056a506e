"""Rows of chunks that are not complete yet, in a file that has no name and ends with its process."""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from stoker.memory.free_ranges import FreeRanges

_ADDRESSES: Final = 1 << 62


class SpoolFile:
    """Payloads in a file without a name, whose disk is given back as they are. Safe for many threads."""

    def __init__(self, folder: str | None) -> None:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            self._fd = os.dup(file.fileno())
        self._closer = weakref.finalize(self, os.close, self._fd)
        self._free = FreeRanges(_ADDRESSES)
        self._num_held = 0
        self._lock = threading.Lock()
        self._left: deque[tuple[int, int]] = deque()

    def put(self, payload: bytes | memoryview) -> int:
        """Keep a payload; returns where it begins. Raises OSError when the disk is full."""
        while self._left:
            self.give(*self._left.popleft())
        with self._lock:
            start = self._free.take(max(1, len(payload)))
            assert start is not None, "there are more addresses than bytes"
            self._num_held += 1
        try:
            _write(self._fd, payload, start)
        except OSError:
            self.give(start, len(payload))
            raise
        return start

    def get(self, start: int, num_bytes: int) -> bytes:
        """Read what lies there. Raises OSError."""
        return os.pread(self._fd, num_bytes, start)

    def give(self, start: int, num_bytes: int) -> None:
        """Keep a payload no longer."""
        with self._lock:
            self._free.give(start, max(1, num_bytes))
            self._num_held -= 1
            if not self._num_held and self._fd >= 0:
                os.ftruncate(self._fd, 0)

    def leave(self, start: int, num_bytes: int) -> None:
        """Like :meth:`give`, from wherever the garbage collector runs, maybe under this very lock: at the next put."""
        self._left.append((start, num_bytes))

    def close(self) -> None:
        """Give all of it back to the disk."""
        self._fd = -1  # the number may soon be that of another file
        self._closer()


@dataclass(slots=True)
class _Chunk:
    num_rows: int
    reserved_bytes: int
    epoch: int
    places: dict[int, tuple[int, int]] = field(default_factory=dict)


class Spool:
    """Bounded in bytes: a chunk is begun only if all of its rows should fit. For one thread at a time.

    With a shuffle, as many chunks as all open windows have fill side by side, decoded: more than memory may hold. Rows
    of a chunk that an epoch does not complete wait for the next, and give way where there is no room.
    """

    def __init__(self, folder: str | None, max_bytes: int) -> None:
        self._file = SpoolFile(folder)
        self._max_bytes = max_bytes
        self._chunks: dict[int, _Chunk] = {}
        self.reserved_bytes = 0

    def add(self, chunk_index: int, row: int, num_rows: int, packed: bytes, epoch: int) -> bool:
        """Keep a row; returns whether the chunk is complete now. Raises OSError when the disk is full."""
        chunk = self._chunks.get(chunk_index)
        if chunk is None:
            chunk = self._begun(chunk_index, num_rows, len(packed) * num_rows, epoch)
        if chunk is None or row in chunk.places:
            return False
        chunk.epoch = max(chunk.epoch, epoch)
        chunk.places[row] = (self._file.put(packed), len(packed))
        return len(chunk.places) == num_rows

    def take(self, chunk_index: int) -> list[bytes]:
        """The rows of a complete chunk, in order; they are kept no longer."""
        places = self._chunks[chunk_index].places
        rows = [self._file.get(*place) for _, place in sorted(places.items())]
        self.drop(chunk_index)
        return rows

    def drop(self, chunk_index: int) -> None:
        """Forget the rows of a chunk, if there are any."""
        chunk = self._chunks.pop(chunk_index, None)
        if chunk is None:
            return
        self.reserved_bytes -= chunk.reserved_bytes
        for place in chunk.places.values():
            self._file.give(*place)

    def close(self) -> None:
        """Give all of it back to the disk."""
        self._file.close()

    def _begun(self, chunk_index: int, num_rows: int, num_bytes: int, epoch: int) -> _Chunk | None:
        if self.reserved_bytes + num_bytes > self._max_bytes:
            for index in [index for index, chunk in self._chunks.items() if chunk.epoch < epoch]:
                self.drop(index)
        if self.reserved_bytes + num_bytes > self._max_bytes:
            return None
        self.reserved_bytes += num_bytes
        self._chunks[chunk_index] = chunk = _Chunk(num_rows, num_bytes, epoch)
        return chunk


def _write(descriptor: int, packed: bytes | memoryview, start: int) -> None:
    rest = memoryview(packed)
    while rest:
        written = os.pwrite(descriptor, rest, start)
        rest, start = rest[written:], start + written
