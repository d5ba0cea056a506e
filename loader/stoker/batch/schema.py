"""What a column's metadata say about the values it holds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeAlias

import pyarrow as pa

from stoker.batch.dtypes import arrow_type, storage_dtype

KEY_COLUMN: Final = "__key__"
SAMPLE_COLUMN: Final = "__sample__"
MASK_COLUMN: Final = "__mask__"
RESERVED: Final = frozenset([KEY_COLUMN, SAMPLE_COLUMN, MASK_COLUMN])

COLUMN_KEY: Final = b"stoker.column"
STRUCTURE_KEY: Final = b"stoker.structure"

Kind: TypeAlias = Literal["tensor", "scalar", "text", "binary", "null", "json", "ragged", "arrays"]


@dataclass(frozen=True, slots=True)
class Column:
    """How one column is to be read.

    ``tensor``: one shape for all rows. ``scalar``: one number a row. ``ragged``: arrays that differ along the first
    axis; ``shape`` is that of the other axes. ``arrays``: arrays of any shape, or none. ``json``: lists and nested
    plain values. ``dtype`` is a dtype name (see :mod:`stoker.batch.dtypes`).
    """

    kind: Kind
    dtype: str = ""
    shape: tuple[int, ...] = ()

    @property
    def arrow_type(self) -> pa.DataType:
        return _arrow_type(self)

    def field(self, name: str) -> pa.Field:
        return _field(name, self, self.arrow_type)

    def typed_field(self, name: str, data_type: pa.DataType) -> pa.Field:
        """Like :meth:`field`, for a column whose offsets needed 64 bits."""
        return _field(name, self, data_type)

    @classmethod
    def of(cls, field: pa.Field) -> Column | None:
        """Read the metadata of a field; None for a column that Stoker did not make."""
        text = (field.metadata or {}).get(COLUMN_KEY)
        return None if text is None else _parse(text)


@lru_cache(maxsize=1024)
def _parse(text: bytes) -> Column:
    found = json.loads(text)
    return Column(found["kind"], found["dtype"], tuple(found["shape"]))


@lru_cache(maxsize=1024)
def _field(name: str, column: Column, data_type: pa.DataType) -> pa.Field:
    text = json.dumps({"kind": column.kind, "dtype": column.dtype, "shape": column.shape})
    return pa.field(name, data_type, metadata={COLUMN_KEY: text.encode()})


@lru_cache(maxsize=1024)
def _arrow_type(column: Column) -> pa.DataType:
    if column.kind == "arrays":
        return pa.struct([("bits", pa.large_binary()), ("shape", pa.list_(pa.int64())), ("dtype", pa.utf8())])
    plain = {"text": pa.utf8(), "json": pa.utf8(), "binary": pa.binary(), "null": pa.null()}
    if column.kind in plain:
        return plain[column.kind]
    return _numeric_type(column, arrow_type(storage_dtype(column.dtype)))


def _numeric_type(column: Column, value: pa.DataType) -> pa.DataType:
    match column.kind:
        case "tensor":
            return pa.fixed_shape_tensor(value, list(column.shape))
        case "ragged":
            return pa.list_(row_type(value, column.shape))
    return pa.bool_() if column.dtype == "bool" else value


def row_type(value: pa.DataType, trailing: tuple[int, ...]) -> pa.DataType:
    """The type of one entry of a ragged row: a number, or a fixed list for an entry of several axes."""
    if not trailing:
        return value
    size = 1
    for length in trailing:
        size *= length
    return pa.list_(value, size)
