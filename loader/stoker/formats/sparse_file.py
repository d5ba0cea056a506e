"""A file of which only some ranges are in memory, for pyarrow."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pyarrow as pa


class SparseFile:
    """What :class:`pyarrow.PythonFile` needs to read ``bodies``, which begin at ``starts``; without any copy.

    A read elsewhere raises ValueError. For one thread.
    """

    closed = False

    def __init__(self, size_bytes: int, starts: Sequence[int], bodies: Sequence[memoryview]) -> None:
        self._size_bytes = size_bytes
        self._starts = starts
        self._bodies = bodies
        self._position = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size_bytes}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read_buffer(self, num_bytes: int) -> pa.Buffer:
        start = self._position
        for first, body in zip(self._starts, self._bodies, strict=True):
            if first <= start and start + num_bytes <= first + len(body):
                self._position += num_bytes
                return pa.py_buffer(body[start - first : start - first + num_bytes])
        raise ValueError(f"bytes {start} to {start + num_bytes} are none of the columns that the footer tells of")

    def close(self) -> None:
        """Nothing is held open."""
