"""Values of one field as an Arrow column over a pool's buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stoker.batch.dtypes import arrow_type, storage_dtype
from stoker.batch.pool import ALIGNMENT_BYTES, BufferPool
from stoker.batch.schema import Column, row_type
from stoker.batch.values import Dense, to_json

Made: TypeAlias = tuple[pa.Field, pa.Array]

_MAX_INT32 = 2**31 - 1


def allocate(pool: BufferPool, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an uninitialised array in a buffer of the pool."""
    num_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return pool.take(num_bytes).view(dtype).reshape(shape)


def tensor(name: str, rows: NDArray[Any], dtype: str) -> Made:
    """A column over ``rows`` (stored bits, C-contiguous, first axis the rows) without a copy; bools of shape () one."""
    if rows.ndim == 1:
        return _scalars(name, rows, dtype)
    column = Column("tensor", dtype, rows.shape[1:])
    data_type = column.arrow_type
    numbers = primitive(rows)
    storage = pa.Array.from_buffers(data_type.storage_type, len(rows), [None], children=[numbers])
    return column.field(name), pa.ExtensionArray.from_storage(data_type, storage)


def primitive(values: NDArray[Any]) -> pa.Array:
    """A flat Arrow array over an array's memory."""
    buffer = pa.py_buffer(values) if values.size else pa.py_buffer(b"")
    return pa.Array.from_buffers(arrow_type(values.dtype), values.size, [None, buffer])


def _scalars(name: str, rows: NDArray[Any], dtype: str) -> Made:
    column = Column("scalar", dtype)
    made = pa.array(rows.view(np.bool_)) if dtype == "bool" else primitive(rows)
    return column.field(name), made


def text(name: str, values: Sequence[str | None]) -> Made:
    return _text(name, values, Column("text"))


def json(name: str, values: Sequence[Any]) -> Made:
    return _text(name, [to_json(value) for value in values], Column("json"))


def _text(name: str, values: Sequence[str | None], column: Column) -> Made:
    made = pa.array(values, pa.utf8())
    if isinstance(made, pa.ChunkedArray):  # Arrow's answer to more than 2 GiB
        made = pa.array(values, pa.large_utf8())
    return column.typed_field(name, made.type), made


def nulls(name: str, num_rows: int) -> Made:
    return Column("null").field(name), pa.nulls(num_rows)


def binary(name: str, values: Sequence[bytes | memoryview | None], pool: BufferPool) -> Made:
    """Bytes behind one another; one copy."""
    views = [memoryview(b"" if value is None else value).cast("B") for value in values]
    offsets = _offsets([len(view) for view in views])
    joined = pool.take(int(offsets[-1]))
    for view, start in zip(views, offsets.tolist(), strict=False):
        joined[start : start + len(view)] = np.frombuffer(view, np.uint8)
    present = np.array([value is not None for value in values], np.bool_)
    validity = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    data_type = pa.binary() if offsets.dtype == np.int32 else pa.large_binary()
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(joined)]
    made = pa.Array.from_buffers(data_type, len(values), buffers)
    return Column("binary").typed_field(name, data_type), made


def ragged(name: str, parts: Sequence[NDArray[Any]], dtype: str, pool: BufferPool) -> Made:
    """Arrays of stored bits that differ along the first axis only, behind one another; one copy."""
    trailing = parts[0].shape[1:] if parts else ()
    offsets = _offsets([len(part) for part in parts])
    storage = parts[0].dtype if parts else storage_dtype(dtype)
    values = allocate(pool, (int(offsets[-1]), *trailing), np.dtype(storage))
    for part, start in zip(parts, offsets.tolist(), strict=False):
        values[start : start + len(part)] = part
    column = Column("ragged", dtype, trailing)
    entry = row_type(arrow_type(values.dtype), trailing)
    child = primitive(values)
    if trailing:
        child = pa.Array.from_buffers(entry, len(values), [None], children=[child])
    data_type = pa.list_(entry) if offsets.dtype == np.int32 else pa.large_list(entry)
    made = pa.Array.from_buffers(data_type, len(parts), [None, pa.py_buffer(offsets)], children=[child])
    return column.typed_field(name, data_type), made


def arrays(name: str, parts: Sequence[Dense | None], pool: BufferPool) -> Made:
    """Arrays of any shape and dtype, or none, each on a 64-byte boundary; one copy."""
    sizes = [0 if part is None else -(-part.bits.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for part in parts]
    offsets = np.cumsum([0, *sizes], dtype=np.int64)
    joined = pool.take(int(offsets[-1]))
    for part, start in zip(parts, offsets.tolist(), strict=False):
        if part is not None:
            place = joined[start : start + part.bits.nbytes].view(part.bits.dtype).reshape(part.bits.shape)
            np.copyto(place, part.bits)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(joined)]
    column = Column("arrays")
    made = pa.StructArray.from_arrays(
        [
            pa.Array.from_buffers(pa.large_binary(), len(parts), buffers),
            pa.array([[] if part is None else part.bits.shape for part in parts], pa.list_(pa.int64())),
            pa.array([None if part is None else part.dtype for part in parts], pa.utf8()),
        ],
        fields=list(column.arrow_type),
    )
    return column.field(name), made


def _offsets(lengths: Sequence[int]) -> NDArray[Any]:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets.astype(np.int32) if offsets[-1] <= _MAX_INT32 else offsets
