"""Writes rows as one Parquet shard that :func:`stoker.parquet` reads well."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from stoker.errors import SpecError
from stoker.formats.parquet_columns import KEY_COLUMN
from stoker.formats.source import DEFAULT_CHUNK_BYTES

Value: TypeAlias = "bytes | bytearray | memoryview | str | bool | int | float | np.generic | NDArray[Any]"
Row: TypeAlias = tuple[str, Mapping[str, Value]]
"""A sample's key with its fields."""

_TYPES: dict[type, pa.DataType] = {
    bytes: pa.large_binary(),
    str: pa.large_string(),
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
}

_TRIED_BYTES = 1 << 20
_WORTHWHILE = 0.9
"""A column of bytes is compressed if that leaves less than this part of it; pictures stay as they are."""

_MIN_PAGE_BYTES = 1 << 20


def encode_shard(rows: Sequence[Row], *, group_bytes: int = DEFAULT_CHUNK_BYTES) -> bytes:
    """One row per sample, in row groups of about ``group_bytes``, as a Parquet file; same rows, same bytes.

    The key stands in the column ``__key__``; a field that a row lacks is null. Bytes, text, numbers and arrays keep
    their kinds. The arrays of a field must agree in all dimensions but the first, else they must be ``.npy`` files.
    Raises SpecError for fields that do not make one column.
    """
    names = list(dict.fromkeys(name for _, fields in rows for name in fields))
    if KEY_COLUMN in names:
        raise SpecError(f"a field is named {KEY_COLUMN!r}, which is the column of the key; rename it")
    columns = {name: _column(name, [fields.get(name) for _, fields in rows]) for name in names}
    arrays = [pa.array([key for key, _ in rows], pa.string()), *columns.values()]
    table = pa.Table.from_arrays(arrays, names=[KEY_COLUMN, *names])
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression=_codecs(table),
        use_dictionary=False,
        write_statistics=False,  # they make the footer ten times as large, and pictures have no minimum
        write_page_checksum=True,
        data_page_size=max(group_bytes, _MIN_PAGE_BYTES),
    ) as writer:
        for start, stop in _groups([_num_bytes(key, fields) for key, fields in rows], group_bytes):
            writer.write_table(table.slice(start, stop - start), row_group_size=stop - start)
    return sink.getvalue()


def _groups(sizes: Sequence[int], group_bytes: int) -> Iterator[tuple[int, int]]:
    """The rows ``[start, stop)`` of each group: as many as fit, at least one."""
    start = filled = 0
    for row, size in enumerate(sizes):
        if row > start and filled + size > group_bytes:
            yield start, row
            start, filled = row, 0
        filled += size
    if start < len(sizes):
        yield start, len(sizes)


def _num_bytes(key: str, fields: Mapping[str, Value]) -> int:
    return len(key) + sum(_value_bytes(value) for value in fields.values())


def _value_bytes(value: Value) -> int:
    if isinstance(value, memoryview | np.ndarray | np.generic):
        return value.nbytes
    return len(value) if isinstance(value, bytes | bytearray | str) else 8


def _column(name: str, values: list[Value | None]) -> pa.Array:
    """All values of a field, None where a row lacks it."""
    kinds = {_kind(value) for value in values if value is not None}
    if kinds == {int, float}:
        kinds = {float}
    if len(kinds) > 1:
        named = sorted(kind.__name__ if isinstance(kind, type) else str(kind) for kind in kinds)
        raise SpecError(f"field {name!r} holds {' and '.join(named)}, in different rows; make them alike")
    kind = kinds.pop() if kinds else bytes
    if isinstance(kind, type) and kind is not np.ndarray and kind not in _TYPES:
        raise SpecError(f"field {name!r} holds a {kind.__name__}; bytes, text, numbers and arrays can be kept")
    try:
        if kind is np.ndarray:
            return _arrays([None if value is None else np.asarray(value) for value in values])
        return pa.array(values, pa.from_numpy_dtype(kind) if isinstance(kind, np.dtype) else _TYPES[kind])
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise SpecError(f"field {name!r} makes no column: {error}") from error


def _kind(value: Value) -> type | np.dtype[Any]:
    """What the values of a field must agree in."""
    if isinstance(value, np.generic | np.ndarray) and not value.ndim:
        return value.dtype
    if isinstance(value, bytearray | memoryview):
        return bytes
    return type(value)


def _arrays(values: Sequence[NDArray[Any] | None]) -> pa.Array:
    """Arrays as lists over their first dimension, of lists of fixed size over the others."""
    present = [value for value in values if value is not None]
    found = sorted({f"{value.dtype} of {('n', *value.shape[1:])}".replace("'", "") for value in present})
    if len(found) > 1:
        raise ValueError(
            f"its arrays are {found[0]} and {found[1]}; make them agree in all but n, or keep them as .npy files"
        )
    first = present[0]
    if 0 in first.shape[1:]:
        raise ValueError(f"its arrays have the shape {first.shape}, and an empty inner dimension cannot be kept")
    flat = pa.array(np.concatenate([np.ravel(value) for value in present]))
    for size in reversed(first.shape[1:]):
        flat = pa.FixedSizeListArray.from_arrays(flat, size)
    ends = np.cumsum([0, *(0 if value is None else len(value) for value in values)])
    missing = pa.array([value is None for value in values])
    return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), flat, mask=missing)


def _codecs(table: pa.Table) -> dict[str, str]:
    """zstd for each column, but not for bytes that are compressed already."""
    found = dict.fromkeys(_leaves(table.schema), "zstd")
    for name in table.column_names:
        column = table.column(name)
        if pa.types.is_large_binary(column.type) and not _shrinks(column):
            found[name] = "none"
    return found


def _leaves(schema: pa.Schema) -> list[str]:
    parquet = pq.ParquetFile(pa.BufferReader(_empty(schema))).schema
    return [parquet.column(number).path for number in range(len(parquet))]


def _empty(schema: pa.Schema) -> bytes:
    sink = io.BytesIO()
    pq.write_table(schema.empty_table(), sink)
    return sink.getvalue()


def _shrinks(column: pa.ChunkedArray) -> bool:
    """Whether zstd makes the column's beginning smaller."""
    tried = bytearray()
    for value in column:
        if len(tried) >= _TRIED_BYTES:
            break
        tried += (value.as_buffer() or b"")[: _TRIED_BYTES - len(tried)]
    return bool(tried) and len(pa.Codec("zstd").compress(tried, asbytes=True)) < _WORTHWHILE * len(tried)
