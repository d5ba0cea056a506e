"""Long lists of plain values as flat columns, a block of rows at a time."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np

MIN_ROWS: Final = 4096
"""Shorter lists are not worth the columns."""

_BLOCK_ROWS_LOG2: Final = 14
_BLOCK_BYTES: Final = 4 << 20
_SAMPLE_ROWS: Final = 256
_FIXED: Final[dict[type, Any]] = {int: "q", float: "d", bool: "?"}
_REPEATS_BYTES: Final = 64
_TEXT: Final = ("utf-8", "surrogatepass")  # file names that are no UTF-8 hold lone surrogates

Buffer: TypeAlias = "bytes | memoryview | array[Any]"


class NotFlatError(Exception):
    """The list does not fit into columns after all."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What the columns of a list are.

    ``kinds`` has the exact type of each column: str, bytes, int (of 64 bits), float (no NaN: lists find one by its
    identity) or bool. ``is_rows``: the items are tuples, with a value for each column.
    """

    length: int
    kinds: tuple[type, ...]
    is_rows: bool
    block_rows_log2: int


def layout_of(items: Sequence[Any]) -> Layout | None:
    """Judge a list by its first block; None if it is to be pickled as it is."""
    if len(items) < MIN_ROWS:
        return None
    first = items[0]
    is_rows = type(first) is tuple
    kinds = tuple(map(type, first)) if is_rows else (type(first),)
    if not kinds or any(kind not in _FIXED and kind not in (str, bytes) for kind in kinds):
        return None
    try:
        columns = _columns_of(items[: 1 << _BLOCK_ROWS_LOG2], kinds, is_rows)
    except NotFlatError:
        return None
    row_bytes = 8
    for column, kind in zip(columns, kinds, strict=True):
        if kind not in _FIXED:
            mean = sum(map(len, column[:_SAMPLE_ROWS])) // _SAMPLE_ROWS
            if mean >= _REPEATS_BYTES and len(set(map(id, column))) * 2 < len(column):
                return None  # a pickle has each object once, columns would have it many times
            row_bytes += mean
    rows_log2 = max(4, min(_BLOCK_ROWS_LOG2, (_BLOCK_BYTES // row_bytes).bit_length() - 1))
    return Layout(len(items), kinds, is_rows, rows_log2)


def columns_by_block(items: Sequence[Any], layout: Layout) -> Iterator[list[list[Any]]]:
    """Cut a list into blocks, each a list of columns. Raises NotFlatError at the first item that does not fit."""
    rows = 1 << layout.block_rows_log2
    for start in range(0, layout.length, rows):
        yield _columns_of(items[start : start + rows], layout.kinds, layout.is_rows)


def _columns_of(items: Sequence[Any], kinds: tuple[type, ...], is_rows: bool) -> list[list[Any]]:
    block = list(items)
    if is_rows:
        if set(map(type, block)) != {tuple} or set(map(len, block)) != {len(kinds)}:
            raise NotFlatError
        columns = [list(map(operator.itemgetter(k), block)) for k in range(len(kinds))]
    else:
        columns = [block]
    if any(set(map(type, column)) != {kind} for column, kind in zip(columns, kinds, strict=True)):
        raise NotFlatError
    return columns


def flatten(column: list[Any], kind: type) -> list[Buffer]:
    """The buffers of one column of a block: the values, or where each ends and all their bytes."""
    if kind is bool:
        return [bytes(column)]
    if kind in _FIXED:
        return [_fixed(column, _FIXED[kind])]
    joined: bytes
    if kind is bytes:
        lengths, joined = _lengths(column), b"".join(column)
    elif (text := "".join(column)).isascii():
        lengths, joined = _lengths(column), text.encode()
    else:
        encoded = [value.encode(*_TEXT) for value in column]
        lengths, joined = _lengths(encoded), b"".join(encoded)
    if len(joined) >= 1 << 32:
        raise NotFlatError
    ends = np.zeros(len(column) + 1, np.uint32)
    np.cumsum(lengths, out=ends[1:])
    return [ends.data, joined]


def digest(column: list[Any], kind: type) -> bytes:
    """Something that changes with any value of the column; the same within one process."""
    if kind is bool:
        return bytes(column)
    if kind in _FIXED:
        return _fixed(column, _FIXED[kind]).tobytes()
    return hash(tuple(column)).to_bytes(8, "little", signed=True)  # strings keep their hashes: no byte is read again


def _fixed(column: list[Any], code: str) -> array[Any]:
    try:
        found = array(code, column)
    except OverflowError:
        raise NotFlatError from None
    if code == "d" and np.isnan(np.frombuffer(found)).any():
        raise NotFlatError
    return found


def _lengths(column: Sequence[str | bytes]) -> Any:
    return np.fromiter(map(len, column), np.int64, len(column))


def num_buffers(kind: type) -> int:
    """How many buffers :func:`flatten` makes of a column."""
    return 1 if kind in _FIXED else 2


class Flat:
    """A list in flat columns, for reading. No reference count is written where its values lie."""

    __slots__ = ("_blocks", "_log2", "length")

    def __init__(self, layout: Layout, buffers: Sequence[memoryview]) -> None:
        self.length = layout.length
        self._log2 = layout.block_rows_log2
        views = iter(buffers)
        num_blocks = -(-layout.length >> self._log2)
        self._blocks = [_block(layout, views) for _ in range(num_blocks)]

    def item(self, index: int) -> Any:
        """The item at ``index``, which is inside."""
        return self._blocks[index >> self._log2].item(index & ((1 << self._log2) - 1))

    def read(self, start: int, stop: int) -> list[Any]:
        """The items from ``start`` up to ``stop``, both inside."""
        found: list[Any] = []
        while start < stop:
            first = start >> self._log2 << self._log2
            until = min(stop, first + (1 << self._log2))
            found += self._blocks[start >> self._log2].items(start - first, until - first)
            start = until
        return found


def _block(layout: Layout, views: Iterator[memoryview]) -> _Block:
    columns = tuple(_column(kind, views) for kind in layout.kinds)
    return _Rows(columns) if layout.is_rows else columns[0]


def _column(kind: type, views: Iterator[memoryview]) -> _Column:
    if kind in _FIXED:
        return _Numbers(next(views).cast(_FIXED[kind]))
    return (_Texts if kind is str else _Bytes)(next(views).cast("I"), next(views))


class _Numbers:
    __slots__ = ("_values",)

    def __init__(self, values: memoryview[Any]) -> None:
        self._values = values

    def item(self, row: int) -> Any:
        return self._values[row]

    def items(self, start: int, stop: int) -> list[Any]:
        return self._values[start:stop].tolist()


class _Bytes:
    __slots__ = ("_ends", "_joined")

    def __init__(self, ends: memoryview[int], joined: memoryview) -> None:
        self._ends = ends
        self._joined = joined

    def item(self, row: int) -> Any:
        return bytes(self._joined[self._ends[row] : self._ends[row + 1]])

    def items(self, start: int, stop: int) -> list[Any]:
        return [bytes(self._joined[a:b]) for a, b in pairwise(self._ends[start : stop + 1].tolist())]


class _Texts(_Bytes):
    __slots__ = ()

    def item(self, row: int) -> Any:
        return str(self._joined[self._ends[row] : self._ends[row + 1]], *_TEXT)

    def items(self, start: int, stop: int) -> list[Any]:
        ends = self._ends[start : stop + 1].tolist()
        first = ends[0]
        joined = bytes(self._joined[first : ends[-1]])
        if joined.isascii():
            text = joined.decode()
            return [text[a - first : b - first] for a, b in pairwise(ends)]
        return [joined[a - first : b - first].decode(*_TEXT) for a, b in pairwise(ends)]


_Column: TypeAlias = _Numbers | _Bytes


class _Rows:
    __slots__ = ("_columns",)

    def __init__(self, columns: tuple[_Column, ...]) -> None:
        self._columns = columns

    def item(self, row: int) -> Any:
        return tuple([column.item(row) for column in self._columns])

    def items(self, start: int, stop: int) -> list[Any]:
        return list(zip(*[column.items(start, stop) for column in self._columns], strict=True))


_Block: TypeAlias = _Column | _Rows
