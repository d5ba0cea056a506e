"""Samples put side by side into one batch."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stoker.batch import columns
from stoker.batch.collate import Collate
from stoker.batch.columns import Made
from stoker.batch.device_rows import DeviceRows
from stoker.batch.dtypes import UnsupportedValueError
from stoker.batch.field import FieldRows
from stoker.batch.pool import BufferPool
from stoker.batch.schema import KEY_COLUMN, MASK_COLUMN, RESERVED, SAMPLE_COLUMN, STRUCTURE_KEY
from stoker.batch.structure import Node, is_nested, leaf_names, structure_to_json, take_apart
from stoker.batch.values import DENSE, NESTED, RULE, Kind, kind_of
from stoker.errors import CollateError
from stoker.sample import Sample, Write


class BatchBuilder:
    """Takes the samples of one batch, from many threads, then becomes an Arrow record batch; used once.

    The first sample of a field fixes its shape and allocates the memory for all rows; pixels of this shape are written
    straight into their row. What fits nowhere is kept beside it until :meth:`finish`. The result does not depend on
    which sample was first. The fields named in ``on_device``, if they are stacked, are made on ``device`` instead, and
    are no columns of the record batch.
    """

    def __init__(
        self,
        num_rows: int,
        pool: BufferPool,
        collate: Mapping[str, Collate],
        *,
        device: str | None = None,
        on_device: Collection[str] = (),
    ) -> None:
        self._num_rows = num_rows
        self._pool = pool
        self._collate = collate
        self._lock = threading.Lock()
        self._fields: dict[str, FieldRows] = {}
        stacked = [name for name in on_device if device is not None and self._mode(name) == "stack"]
        self._device_rows = {name: DeviceRows(name, num_rows, device or "cpu") for name in stacked}
        self._keys: list[str] = [""] * num_rows
        self._samples = np.full(num_rows, -1, np.int64)
        self._names: list[tuple[str, ...]] = [()] * num_rows
        self._nested: dict[int, dict[str, Node]] = {}

    def put(self, row: int, sample: Sample) -> None:
        """Write a sample into its row: :meth:`prepare`, and what it leaves to be done."""
        for write in self.prepare(row, sample):
            write()

    def prepare(self, row: int, sample: Sample) -> list[Write]:
        """Write all of a sample into its row but the pixels; the result, called in this thread, makes those.

        Each row once, different rows from different threads at the same time. This and the result raise SampleError if
        the sample turns out to be bad; its row must then not be among those of :meth:`finish`. Raises CollateError if a
        value is of a kind that cannot travel. Arrays are not copied where they do not fit their row, so they must not
        change before :meth:`finish`.
        """
        nested: dict[str, Node] = {}
        writes: list[Write] = []
        for name, value in sample.fields.items():
            if name in self._device_rows:
                write = self._device_rows[name].put(row, value, sample.origin.key)
                writes += [] if write is None else [write]
                continue
            try:
                part = self._put(row, name, value, writes)
            except UnsupportedValueError as error:
                raise CollateError(f"field {name!r} of sample {sample.origin.key!r}: {error}; {RULE}") from None
            if isinstance(part, Node):
                nested[name] = part
        if nested:
            self._nested[row] = nested
        self._keys[row] = sample.origin.key
        self._names[row] = tuple(name for name in sample.fields if name not in self._device_rows)
        self._samples[row] = sample.index
        return writes

    def finish(
        self, rows: NDArray[np.int64], mask: NDArray[np.bool_] | None, metadata: Mapping[str, str]
    ) -> pa.RecordBatch:
        """Make the batch whose row ``i`` shows the sample that was put into row ``rows[i]``.

        Rows in their own places cost nothing, a repeated one costs its copy, and fewer rows than were put make a
        shorter batch, even an empty one, which keeps the columns of what was put. ``mask`` becomes ``__mask__``.
        Raises CollateError if samples do not fit together.
        """
        shown = self._shown(rows)
        keys = [self._keys[row] for row in shown]
        made = reserved_columns(keys, self._samples[shown])
        if mask is not None:
            made.append(mask_column(mask if len(rows) else np.ones(len(shown), np.bool_)))
        nested = self._common_forms(shown) if self._nested else {}
        for name in self._column_order(shown, nested):
            made += self._fields[name].finish(shown, keys)
        batch = record_batch(made, structure_to_json(nested) if nested else None, metadata)
        return batch if len(rows) else batch.slice(0, 0)

    def device_fields(self, rows: NDArray[np.int64]) -> dict[str, Any]:
        """The fields made on the device, as tensors with the rows that :meth:`finish` shows. Raises CollateError."""
        shown = self._shown(rows)
        keys = [self._keys[row] for row in shown]
        made = {name: field.finish(shown, keys) for name, field in self._device_rows.items() if field.has_any}
        return {name: tensor[: len(rows)] for name, tensor in made.items()}

    def _shown(self, rows: NDArray[np.int64]) -> Sequence[int]:
        """The rows; a range where they are the first ones in their places, any that was put where none is asked for."""
        if not len(rows):
            return [int(row) for row in np.flatnonzero(self._samples >= 0)[:1]]
        if self._samples[rows].min() < 0:
            raise ValueError(f"row {rows[self._samples[rows] < 0][0]} is asked for but was not put")
        first = range(len(rows))
        return first if np.array_equal(rows, first) else [int(row) for row in rows]

    def _put(self, row: int, name: str, value: Any, writes: list[Write]) -> Node | str:
        """Put one value, or the leaves of a nested one; returns its form, for a leaf its name."""
        kind = kind_of(value)
        if kind in DENSE:
            write = self._field(name).put_dense(row, value, kind)
            if write is not None:
                writes.append(write)
        elif kind in NESTED and is_nested(value, kind) and not (kind is Kind.MAPPING and self._mode(name) == "list"):
            form, class_name, parts = take_apart(name, value, kind)
            return Node(
                form, class_name, tuple((key, self._put(row, f"{name}.{key}", part, writes)) for key, part in parts)
            )
        elif kind is Kind.OTHER:
            raise UnsupportedValueError(f"a {type(value).__module__}.{type(value).__qualname__} cannot travel")
        else:
            self._field(name).put(row, value)
        return name

    def _field(self, name: str) -> FieldRows:
        field = self._fields.get(name)
        if field is None:
            with self._lock:
                if name not in self._fields:
                    self._fields[name] = FieldRows(name, self._num_rows, self._mode(name), self._pool)
                field = self._fields[name]
        return field

    def _mode(self, name: str) -> Collate:
        """The mode asked for a column, or for the nested field it is a part of."""
        while name not in self._collate:
            name, dot, _ = name.rpartition(".")
            if not dot:
                return "stack"
        return self._collate[name]

    def _column_order(self, shown: Sequence[int], nested: Mapping[str, Node]) -> list[str]:
        """Columns in the order of the first row that has them: the same, whichever row was put first."""
        order: dict[str, None] = {}
        for names in dict.fromkeys([self._names[row] for row in shown]):
            leaves = [leaf for name in names for leaf in (leaf_names(nested[name]) if name in nested else [name])]
            _check_distinct(leaves)
            order.update(dict.fromkeys(leaves))
        return list(order)

    def _common_forms(self, shown: Sequence[int]) -> dict[str, Node]:
        """The form of each nested field, which all rows must share."""
        first: dict[str, int] = {}
        for row in shown:
            for name in self._nested.get(row, ()):
                first.setdefault(name, row)
        for name, first_row in first.items():
            for row in shown:
                if self._nested.get(row, {}).get(name) != self._nested[first_row][name]:
                    raise CollateError(self._different_forms(name, first_row, row))
        return {name: self._nested[row][name] for name, row in first.items()}

    def _different_forms(self, name: str, first: int, other: int) -> str:
        found = self._nested.get(other, {}).get(name)
        if found is not None:
            form = found.describe()
        else:
            form = "a value that is not nested" if name in self._names[other] else "no such field"
        return (
            f"field {name!r}: sample {self._keys[first]!r} has {self._nested[first][name].describe()} and sample "
            f"{self._keys[other]!r} has {form}; bring them to one form in a Map, or, for dicts of plain values, take "
            f'collate={{{name!r}: "list"}}'
        )


def reserved_columns(keys: Sequence[str], samples: NDArray[np.int64]) -> list[Made]:
    """The columns that every batch has."""
    return [columns.text(KEY_COLUMN, keys), columns.tensor(SAMPLE_COLUMN, samples, "int64")]


def mask_column(mask: NDArray[np.bool_]) -> Made:
    return columns.tensor(MASK_COLUMN, mask.view(np.uint8), "bool")


def record_batch(made: Sequence[Made], structure: bytes | None, metadata: Mapping[str, str]) -> pa.RecordBatch:
    """Put columns together. Raises CollateError if two have one name."""
    _check_distinct([field.name for field, _ in made])
    texts: dict[bytes, bytes] = {key.encode(): value.encode() for key, value in metadata.items()}
    if structure is not None:
        texts[STRUCTURE_KEY] = structure
    schema = pa.schema([field for field, _ in made], metadata=texts)
    return pa.RecordBatch.from_arrays([array for _, array in made], schema=schema)


def _check_distinct(names: Sequence[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            reason = "the name is taken by Stoker" if name in RESERVED else "two fields make a column of this name"
            raise CollateError(f"field {name!r}: {reason}; give one another name with Rename")
