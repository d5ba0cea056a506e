"""The batch that stands where no good sample is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stoker.batch import columns
from stoker.batch.builder import mask_column, record_batch, reserved_columns
from stoker.batch.columns import Made, allocate
from stoker.batch.dtypes import storage_dtype
from stoker.batch.pool import BufferPool
from stoker.batch.schema import RESERVED, STRUCTURE_KEY, Column, Kind


def empty(num_rows: int, like: pa.Schema | None, pool: BufferPool, metadata: Mapping[str, str]) -> pa.RecordBatch:
    """Return ``num_rows`` masked rows of zeros, empty strings, empty arrays and None, in the columns of ``like``.

    Every row has the key ``""`` and the sample number -1. Without ``like`` there are no other columns.
    """
    made = reserved_columns([""] * num_rows, np.full(num_rows, -1, np.int64))
    made.append(mask_column(np.zeros(num_rows, np.bool_)))
    for field in like or []:
        column = Column.of(field)
        if field.name not in RESERVED and column is not None:
            made.append(_filled(field.name, column, num_rows, pool))
    structure = (like.metadata or {}).get(STRUCTURE_KEY) if like is not None else None
    return record_batch(made, structure, metadata)


def _filled(name: str, column: Column, num_rows: int, pool: BufferPool) -> Made:
    fillers: dict[Kind, Callable[[], Made]] = {
        "null": lambda: columns.nulls(name, num_rows),
        "text": lambda: columns.text(name, [""] * num_rows),
        "binary": lambda: columns.binary(name, [b""] * num_rows, pool),
        "json": lambda: columns.json(name, [None] * num_rows),
        "arrays": lambda: columns.arrays(name, [None] * num_rows, pool),
        "ragged": lambda: columns.ragged(name, [_no_entries(column)] * num_rows, column.dtype, pool),
        "tensor": lambda: _zeros(name, column, num_rows, pool),
        "scalar": lambda: _zeros(name, column, num_rows, pool),
    }
    return fillers[column.kind]()


def _no_entries(column: Column) -> NDArray[Any]:
    return np.zeros((0, *column.shape), storage_dtype(column.dtype))


def _zeros(name: str, column: Column, num_rows: int, pool: BufferPool) -> Made:
    zeros = allocate(pool, (num_rows, *column.shape), storage_dtype(column.dtype))
    zeros.fill(0)
    return columns.tensor(name, zeros, column.dtype)
