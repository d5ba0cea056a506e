"""The bytes of ranges as slices on the wire, and back, each copied where it must be only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from stoker.errors import ServiceError
from stoker_service.transport.encode import MAX_SLICE_BYTES, SLICE_SCHEMA, Encoded, slices

NO_BYTES = pa.RecordBatch.from_arrays([pa.array([], pa.uint8())], schema=SLICE_SCHEMA)
"""What goes with a message that has no bytes."""


def cut(bodies: Sequence[memoryview]) -> Iterator[pa.RecordBatch]:
    """The bodies one behind another, in slices of at most 4 MiB; those of half a MiB and more lie where they lay."""
    pieces = tuple(pa.py_buffer(body) for body in bodies)
    return slices(Encoded(pieces, sum(len(body) for body in bodies)), MAX_SLICE_BYTES)


def joined(parts: Iterable[pa.RecordBatch], sizes: Sequence[int]) -> list[memoryview]:
    """Bodies of these sizes out of slices; one that came in a single slice stays where it came.

    Raises ServiceError if there are fewer bytes or more.
    """
    arriving = _Arriving(parts)
    bodies = [arriving.take(size) for size in sizes]
    arriving.end()
    return bodies


class _Arriving:
    """Slices on their way."""

    def __init__(self, parts: Iterable[pa.RecordBatch]) -> None:
        self._parts = iter(parts)
        self._rest = memoryview(b"")

    def take(self, size: int) -> memoryview:
        """The next ``size`` bytes."""
        if not self._rest:
            self._rest = self._next()
        if size <= len(self._rest):
            return self._taken(size)
        body = np.empty(size, np.uint8)  # over several slices; numpy lets other threads run while it copies
        num_here = 0
        while num_here < size:
            part = self._taken(min(size - num_here, len(self._rest)))
            body[num_here : num_here + len(part)] = np.frombuffer(part, np.uint8)
            num_here += len(part)
            if num_here < size:
                self._rest = self._next()
        return body.data.toreadonly()

    def end(self) -> None:
        """Wait for the end of the call."""
        if self._rest or any(len(part) for part in self._parts):
            raise ServiceError("a worker sent more bytes than it was asked for")

    def _taken(self, size: int) -> memoryview:
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def _next(self) -> memoryview:
        for part in self._parts:
            column = part.column(0)
            if len(column):
                return memoryview(column.buffers()[1]).cast("B")[column.offset : column.offset + len(column)]
        raise ServiceError("a worker sent fewer bytes than it was asked for")
