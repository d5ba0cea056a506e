"""A batch put together again in memory of a pool, which may be written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import types

from stoker.batch.pool import BufferPool
from stoker.errors import ServiceError, StokerError

Own: TypeAlias = Callable[[pa.Buffer | None], pa.Buffer | None]
"""Turns a buffer that Arrow says may not be written into one over the same bytes that may."""


class Assembly:
    """Takes the bytes of one batch in their order, copying each once into pool memory; used once, by one thread.

    An Assembly that is dropped half-filled gives its memory back to the pool.
    """

    def __init__(self, num_bytes: int, pool: BufferPool) -> None:
        self._bytes = pool.take(num_bytes)
        self._num_here = 0

    @property
    def num_missing(self) -> int:
        """Bytes that are still to come."""
        return len(self._bytes) - self._num_here

    def add(self, part: pa.RecordBatch) -> None:
        """Add a slice as :func:`stoker_service.transport.encode.slices` makes them."""
        column = part.column(0)
        if len(column):
            self.add_bytes(np.frombuffer(column.buffers()[1], np.uint8, len(column), column.offset))

    def add_bytes(self, part: memoryview | bytes | NDArray[np.uint8]) -> None:
        """Add bytes; other threads run while many are copied. Raises StokerError if they are more than were told."""
        found = part if isinstance(part, np.ndarray) else np.frombuffer(part, np.uint8)
        stop = self._num_here + len(found)
        if stop > len(self._bytes):
            raise StokerError(f"a batch of {len(self._bytes)} bytes was announced and at least {stop} bytes came")
        self._bytes[self._num_here : stop] = found
        self._num_here = stop

    def taken(self) -> NDArray[np.uint8]:
        """Return all bytes, in the pool's memory. Raises ServiceError if some are missing."""
        if self.num_missing:
            raise ServiceError(f"a batch was cut short: {self._num_here} of {len(self._bytes)} bytes came")
        return self._bytes

    def finish(self) -> pa.RecordBatch:
        """Return the batch; its arrays lie over the pool's memory and may be written.

        Raises ServiceError if bytes are missing, StokerError if they are no batch.
        """
        self.taken()
        try:
            with pa.ipc.open_stream(pa.py_buffer(self._bytes)) as reader:
                batch = reader.read_next_batch()
        except (pa.ArrowInvalid, OSError, StopIteration) as error:
            raise StokerError(f"{len(self._bytes)} bytes came that are not an Arrow batch: {error}") from error
        arrays = [_rebuilt(array, self._own) for array in batch.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=batch.schema) if arrays else batch

    def _own(self, buffer: pa.Buffer | None) -> pa.Buffer | None:
        if buffer is None:
            return None
        start = buffer.address - self._bytes.ctypes.data
        if buffer.size == 0 or not 0 <= start <= len(self._bytes) - buffer.size:
            return buffer  # Arrow's own: of size zero, or made while reading
        return pa.py_buffer(self._bytes[start : start + buffer.size])


def _rebuilt(array: pa.Array, own: Own) -> pa.Array:
    """The same array over buffers that may be written; as it is where nothing of it is ever handed out as numbers."""
    data_type = array.type
    if isinstance(data_type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(data_type, _rebuilt(array.storage, own))
    if types.is_struct(data_type):
        return _nested(array, 1, [array.field(i) for i in range(data_type.num_fields)], own)
    if types.is_fixed_size_list(data_type):
        return _nested(array, 1, [array.values], own)
    if types.is_list(data_type) or types.is_large_list(data_type):
        return _nested(array, 2, [array.values], own)
    if types.is_primitive(data_type) or _is_bytes(data_type):
        return _nested(array, data_type.num_buffers, [], own)
    return array  # nulls have no memory; dictionaries, maps, unions and views are read as lists of values


def _is_bytes(data_type: pa.DataType) -> bool:
    checks = (
        types.is_binary,
        types.is_large_binary,
        types.is_string,
        types.is_large_string,
        types.is_fixed_size_binary,
        types.is_decimal,
    )
    return any(check(data_type) for check in checks)


def _nested(array: pa.Array, num_buffers: int, children: Sequence[pa.Array], own: Own) -> pa.Array:
    buffers: list[Any] = [own(buffer) for buffer in array.buffers()[:num_buffers]]
    made = [_rebuilt(child, own) for child in children]
    return pa.Array.from_buffers(array.type, len(array), buffers, array.null_count, array.offset, made or None)
