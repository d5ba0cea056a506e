"""How the columns of a Parquet table become fields of samples; pure.

Bytes are views of the column, text is ``str``, numbers, dates and lists of numbers are NumPy's. A picture as Hugging
Face writes it, a struct of ``bytes`` and ``path``, is its bytes. Other lists and structs are JSON,
other values text.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import types

from stoker.errors import SampleError

KEY_COLUMN = "__key__"
_KEY_COLUMNS = (KEY_COLUMN, "key")
_PICTURE_BYTES = "bytes"


def key_column(schema: pa.Schema) -> str:
    """The column of text that holds the keys; empty if there is none."""
    names = (name for name in _KEY_COLUMNS if schema.get_field_index(name) >= 0)
    return next((name for name in names if _is_text(_storage(schema.field(name).type))), "")


def is_readable(kind: pa.DataType) -> bool:
    """Whether a column of this type can be a field."""
    kind = _storage(kind)
    return _is_bytes(kind) or _is_picture(kind) or _is_json(kind)


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """The value of each row; None where it is null, an error where it cannot be said."""
    found: list[Any] = []
    for chunk in column.chunks:
        found += _values(chunk)
    return found


def _values(array: pa.Array) -> list[Any]:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _tensors(array) if isinstance(kind, pa.FixedShapeTensorType) else _values(array.storage)
    if types.is_dictionary(kind):
        return _values(array.dictionary_decode())
    return [None] * len(array) if types.is_null(kind) else _where(array, _present_values(array))


def _present_values(array: pa.Array) -> list[Any]:
    """As :func:`values_of`, with anything where it is null."""
    kind = array.type
    if _is_bytes(kind):
        return _views(array)
    if _is_text(kind):
        return [_text(view) for view in _views(array)]
    if _is_picture(kind):
        return _values(array.field(_PICTURE_BYTES))
    if _is_number(kind):
        return list(_numbers(array))
    if _is_numbers(kind):
        return _lists(array)
    write = _json if types.is_nested(kind) else str
    return [write(value) for value in array.to_pylist()]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _tensors(array: pa.Array) -> list[Any]:
    """Arrays of one shape, kept flat; in the order they are kept, whatever names and permutation say."""
    flat = _dense(array.storage)
    return _where(array, list(flat.reshape(len(array), *array.type.shape)))


def _where(array: pa.Array, values: list[Any]) -> list[Any]:
    """The values with None where the array is null."""
    if not array.null_count:
        return values
    return [value if there else None for value, there in zip(values, _bits(array, 0).tolist(), strict=True)]


def _views(array: pa.Array) -> list[memoryview]:
    kind = array.type
    if types.is_binary_view(kind) or types.is_string_view(kind):
        return _views(array.cast(pa.large_binary()))
    if types.is_fixed_size_binary(kind):
        width = kind.byte_width
        ends = [(array.offset + row) * width for row in range(len(array) + 1)]
        content = array.buffers()[1]
    else:
        ends = _offsets(array).tolist()
        content = array.buffers()[2]
    whole = memoryview(content).cast("B").toreadonly() if content is not None else memoryview(b"")
    return [whole[start:stop] for start, stop in pairwise(ends)]


def _offsets(array: pa.Array) -> NDArray[Any]:
    """Where each value of an array of bytes, text or lists begins in the values of all, and where the last ends."""
    kind = array.type
    is_large = types.is_large_binary(kind) or types.is_large_string(kind) or types.is_large_list(kind)
    dtype = np.dtype(np.int64 if is_large else np.int32)
    if not len(array):
        return np.zeros(1, dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array) + 1, array.offset * dtype.itemsize)


def _text(view: memoryview) -> str | SampleError:
    try:
        return str(view, "utf-8")
    except UnicodeDecodeError as error:
        return SampleError(f"a column of text holds bytes that are no UTF-8: {error}")


def _numbers(array: pa.Array) -> NDArray[Any]:
    """Numbers, not to be changed, nulls as whatever stands there; a view, but for bools and days."""
    kind = array.type
    if not len(array):
        return np.empty(0, _dtype(kind))
    if types.is_boolean(kind):
        return _bits(array, 1)
    dtype = np.dtype(np.int32) if types.is_date32(kind) else _dtype(kind)
    found = np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)
    found.flags.writeable = False  # other rows, and later reads of this one, see the same memory
    return found.astype(_dtype(kind), copy=False)


def _dtype(kind: pa.DataType) -> np.dtype[Any]:
    if types.is_date32(kind):
        return np.dtype("datetime64[D]")
    if types.is_date64(kind):
        return np.dtype("datetime64[ms]")
    if types.is_timestamp(kind):
        return np.dtype(f"datetime64[{kind.unit}]")
    if types.is_duration(kind):
        return np.dtype(f"timedelta64[{kind.unit}]")
    found: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    return found


def _bits(array: pa.Array, buffer_index: int) -> NDArray[np.bool_]:
    packed = np.frombuffer(array.buffers()[buffer_index], np.uint8)
    found = np.unpackbits(packed, count=array.offset + len(array), bitorder="little")
    return found[array.offset :].view(np.bool_)


def _lists(array: pa.Array) -> list[NDArray[Any] | SampleError]:
    """The array in each row: over the first dimension any length, over the others the same for all."""
    values = array.values
    dense = _dense(values)
    if types.is_fixed_size_list(array.type):
        size = array.type.list_size
        ends = [(array.offset + row) * size for row in range(len(array) + 1)]
    else:
        ends = _offsets(array).tolist()
    if not _nulls(values):
        return [dense[start:stop] for start, stop in pairwise(ends)]
    return [
        SampleError("a list has a null where a number should be") if _nulls(values[start:stop]) else dense[start:stop]
        for start, stop in pairwise(ends)
    ]


def _dense(array: pa.Array) -> NDArray[Any]:
    """Numbers, or lists of fixed size of them, as one array."""
    if not types.is_fixed_size_list(array.type):
        return _numbers(array)
    size = array.type.list_size
    inner = _dense(array.values)[array.offset * size : (array.offset + len(array)) * size]
    return inner.reshape(len(array), size, *inner.shape[1:])


def _nulls(array: pa.Array) -> bool:
    if array.null_count:
        return True
    return types.is_fixed_size_list(array.type) and _nulls(array.flatten())


def _storage(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _storage(kind.storage_type)
    return _storage(kind.value_type) if types.is_dictionary(kind) else kind


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_number(kind: pa.DataType) -> bool:
    is_time = types.is_date(kind) or types.is_timestamp(kind) or types.is_duration(kind)
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or is_time)


def _is_numbers(kind: pa.DataType) -> bool:
    """Whether a type is a list of numbers, or of lists of fixed size of numbers."""
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return False
    inner = kind.value_type
    while types.is_fixed_size_list(inner):
        inner = inner.value_type
    return _is_number(inner)


def _is_picture(kind: pa.DataType) -> bool:
    if not types.is_struct(kind) or kind.get_field_index(_PICTURE_BYTES) < 0:
        return False
    others = [kind.field(number).type for number in range(kind.num_fields) if kind.field(number).name != _PICTURE_BYTES]
    return _is_bytes(kind.field(_PICTURE_BYTES).type) and all(_is_text(other) for other in others)


def _is_json(kind: pa.DataType) -> bool:
    """Whether JSON can say it: no bytes inside."""
    kind = _storage(kind)
    return not _is_bytes(kind) and all(_is_json(kind.field(number).type) for number in range(kind.num_fields))
