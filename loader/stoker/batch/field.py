"""One column on its way: the rows that are like the first, and beside them those that are not."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.batch import columns
from stoker.batch.collate import MISSING, Collate, Rows, assemble
from stoker.batch.columns import Made, allocate
from stoker.batch.dtypes import dtype_name, is_stored_as_is, storage_dtype
from stoker.batch.pool import BufferPool
from stoker.batch.values import Dense, Kind, dense, scalar_dtype
from stoker.sample import Deferred, Write


@dataclass(frozen=True, slots=True)
class _Block:
    """The memory of all rows of a field, which fits values of one dtype and shape."""

    rows: NDArray[Any]
    dtype: str
    shape: tuple[int, ...]
    weak: bool

    def fits(self, dtype: str, shape: tuple[int, ...], weak: bool) -> bool:
        return self.dtype == dtype and self.shape == shape and self.weak == weak


class FieldRows:
    """Takes the values of one column, row by row; different rows may be put by different threads."""

    def __init__(self, name: str, num_rows: int, mode: Collate, pool: BufferPool) -> None:
        self._name = name
        self._num_rows = num_rows
        self._mode: Collate = mode
        self._pool = pool
        self._lock = threading.Lock()
        self._block: _Block | None = None
        self._present = bytearray(num_rows)
        self._others: dict[int, Any] = {}

    def put(self, row: int, value: Any) -> None:
        """Keep a value that is not an array or number until the batch is finished."""
        self._others[row] = value

    def put_dense(self, row: int, value: Any, kind: Kind) -> Write | None:
        """Write an array or number into its row, or keep it beside the rows if it is not like the first.

        Pixels that are not made yet are prepared: what is returned writes them.
        """
        if self._mode != "stack":
            self._others[row] = dense(value, kind)
            return None
        match kind:
            case Kind.SCALAR:
                self._put_scalar(row, value)
            case Kind.DEFERRED:
                return self._put_deferred(row, value)
            case _:
                self._put_bits(row, dense(value, kind))
        return None

    def finish(self, shown: Sequence[int], keys: Sequence[str]) -> list[Made]:
        """Make the columns whose row ``i`` is what was put into ``shown[i]``; a range shows the first rows as they are.

        Raises CollateError.
        """
        if self._block is not None and self._all_in_block(shown):
            return [columns.tensor(self._name, self._arranged(self._block.rows, shown), self._block.dtype)]
        values = [self._value(row) for row in shown]
        return assemble(Rows(self._name, values, keys, self._mode), self._pool)

    def _put_scalar(self, row: int, value: Any) -> None:
        weak = not isinstance(value, np.generic)
        name = scalar_dtype(value)
        if not is_stored_as_is(name):
            self._put_bits(row, dense(value, Kind.SCALAR))
            return
        block = self._block_for(name, (), weak=weak)
        if block is None:
            self._others[row] = dense(value, Kind.SCALAR)
        else:
            block.rows[row] = value
            self._present[row] = 1

    def _put_deferred(self, row: int, value: Deferred) -> Write | None:
        block = self._block_for(dtype_name(value.dtype), value.shape, weak=False)
        if block is None:
            self._others[row] = dense(value, Kind.DEFERRED)
            return None
        self._present[row] = 1
        return value.writer(block.rows[row].view(value.dtype))

    def _put_bits(self, row: int, value: Dense) -> None:
        block = self._block_for(value.dtype, value.bits.shape, weak=value.weak)
        if block is None:
            self._others[row] = value
        else:
            block.rows[row] = value.bits
            self._present[row] = 1

    def _block_for(self, dtype: str, shape: tuple[int, ...], *, weak: bool) -> _Block | None:
        """Return the block if it fits; the first caller makes it fit."""
        block = self._block
        if block is None:
            with self._lock:
                block = self._block
                if block is None:
                    block = self._block = _Block(self._allocate(dtype, shape), dtype, shape, weak)
        return block if block.fits(dtype, shape, weak) else None

    def _allocate(self, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
        return allocate(self._pool, (self._num_rows, *shape), storage_dtype(dtype))

    def _all_in_block(self, shown: Sequence[int]) -> bool:
        if isinstance(shown, range):
            return self._present.count(1, 0, len(shown)) == len(shown)
        return all(map(self._present.__getitem__, shown))

    def _value(self, row: int) -> Any:
        if self._block is not None and self._present[row]:
            return Dense(self._block.rows[row], self._block.dtype, self._block.weak)
        return self._others.get(row, MISSING)

    def _arranged(self, rows: NDArray[Any], shown: Sequence[int]) -> NDArray[Any]:
        """Return the rows that are shown: in place where none is overwritten before it is read, else as a copy."""
        if isinstance(shown, range):
            return rows[: len(shown)]
        moves = [(i, row) for i, row in enumerate(shown) if i != row]
        overwritten: set[int] = set()
        for i, row in moves:
            if row in overwritten or i >= self._num_rows:
                arranged = allocate(self._pool, (len(shown), *rows.shape[1:]), rows.dtype)
                return np.take(rows, shown, axis=0, out=arranged)
            overwritten.add(i)
        for i, row in moves:
            rows[i] = rows[row]
        return rows[: len(shown)]
