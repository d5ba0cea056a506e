"""What becomes of a field whose samples differ: the modes, and the error when none was asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from stoker.batch import columns
from stoker.batch.columns import Made, allocate
from stoker.batch.dtypes import UnsupportedValueError, dtype_name, storage_dtype
from stoker.batch.pool import BufferPool
from stoker.batch.values import RULE, Dense, Kind, from_list, kind_of
from stoker.errors import CollateError

Collate: TypeAlias = Literal["stack", "pad", "ragged", "list"]


class Missing:
    """The type of :data:`MISSING`."""


MISSING = Missing()
"""Stands for a field that a sample does not have."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The values of one field in the rows of a batch, with the keys of the samples they are from.

    A value is a :class:`Dense`, text, bytes, a list or dict that stays whole, None, or ``MISSING``.
    """

    name: str
    values: Sequence[Any]
    keys: Sequence[str]
    mode: Collate


def assemble(rows: Rows, pool: BufferPool) -> list[Made]:
    """Make the columns of a field, under its mode. Raises CollateError."""
    kinds = {_sort(value) for value in rows.values}
    present = kinds - {Kind.NONE}
    try:
        if not present:
            return [columns.nulls(rows.name, len(rows.values))]
        if rows.mode in ("pad", "ragged") and present <= {Kind.ARRAY, Kind.LIST}:
            parts = _aligned(rows)
            return _pad(rows, parts, pool) if rows.mode == "pad" else [_ragged(rows, parts, pool)]
        if len(present) == 1:
            return [_uniform(rows, present.pop(), Kind.NONE in kinds, pool)]
        if rows.mode == "list":
            return [columns.json(rows.name, [_python(value) for value in rows.values])]
    except UnsupportedValueError as error:
        raise CollateError(f"field {rows.name!r}: {error}; {RULE}") from None
    raise CollateError(_mixed(rows))


def _sort(value: Any) -> Kind:
    if isinstance(value, Dense):
        return Kind.ARRAY
    if isinstance(value, Missing):
        return Kind.NONE
    return kind_of(value)


def _uniform(rows: Rows, kind: Kind, has_gaps: bool, pool: BufferPool) -> Made:
    values = [None if isinstance(value, Missing) else value for value in rows.values]
    match kind:
        case Kind.TEXT:
            return columns.text(rows.name, values)
        case Kind.BINARY:
            return columns.binary(rows.name, values, pool)
        case Kind.LIST | Kind.MAPPING:
            return columns.json(rows.name, values)
    if rows.mode == "list":
        if all(value is None or value.weak for value in values):
            return columns.json(rows.name, [_python(value) for value in values])
        return columns.arrays(rows.name, values, pool)
    if has_gaps:
        raise CollateError(_mixed(rows))
    return _stack(rows, pool)


def _stack(rows: Rows, pool: BufferPool) -> Made:
    parts = _promoted(rows, cast(list[Dense], list(rows.values)))
    for i, part in enumerate(parts):
        if part.bits.shape != parts[0].bits.shape:
            raise CollateError(_different_shapes(rows, parts, i))
    stacked = allocate(pool, (len(parts), *parts[0].bits.shape), parts[0].bits.dtype)
    for i, part in enumerate(parts):
        stacked[i] = part.bits
    return columns.tensor(rows.name, stacked, parts[0].dtype)


def _pad(rows: Rows, parts: list[Dense], pool: BufferPool) -> list[Made]:
    """Zeros at the end of every axis, up to the longest, and a column of the lengths before that."""
    ndim = parts[0].bits.ndim
    for i, part in enumerate(parts):
        if part.bits.ndim != ndim or ndim == 0:
            raise CollateError(_different_shapes(rows, parts, i))
    lengths = np.array([part.bits.shape for part in parts], np.int64)
    padded = allocate(pool, (len(parts), *lengths.max(axis=0).tolist()), parts[0].bits.dtype)
    for i, part in enumerate(parts):
        if part.bits.shape != padded.shape[1:]:
            padded[i] = 0
        padded[i][tuple(slice(length) for length in part.bits.shape)] = part.bits
    lengths = lengths[:, 0].copy() if ndim == 1 else lengths
    return [
        columns.tensor(rows.name, padded, parts[0].dtype),
        columns.tensor(f"{rows.name}_length", lengths, "int64"),
    ]


def _ragged(rows: Rows, parts: list[Dense], pool: BufferPool) -> Made:
    for i, part in enumerate(parts):
        if part.bits.ndim == 0 or part.bits.shape[1:] != parts[0].bits.shape[1:]:
            raise CollateError(_different_shapes(rows, parts, i))
    return columns.ragged(rows.name, [part.bits for part in parts], parts[0].dtype, pool)


def _aligned(rows: Rows) -> list[Dense]:
    """Turn lists of numbers into arrays; an empty list takes the dtype and further axes of the others."""
    parts = []
    for value, key in zip(rows.values, rows.keys, strict=True):
        part = from_list(value) if isinstance(value, list) else value
        if not isinstance(part, Dense):
            found = "a list that is not an array of numbers" if isinstance(value, list) else _describe(value)
            raise CollateError(f'field {rows.name!r} of sample {key!r} has {found}; collate "{rows.mode}" needs arrays')
        parts.append(part)
    filled = [part for part in parts if not _is_empty_list(part)]
    if not filled:
        return parts
    shape = (0, *filled[0].bits.shape[1:])
    stand_in = Dense(np.zeros(shape, filled[0].bits.dtype), filled[0].dtype, filled[0].weak)
    return _promoted(rows, [stand_in if _is_empty_list(part) else part for part in parts])


def _is_empty_list(part: Dense) -> bool:
    return part.weak and part.bits.shape == (0,)


def _promoted(rows: Rows, parts: list[Dense]) -> list[Dense]:
    """Bring Python's own numbers to one dtype. Arrays must have it already."""
    names = {part.dtype for part in parts}
    if len(names) == 1:
        return parts
    if not all(part.weak for part in parts):
        i = next(i for i, part in enumerate(parts) if part.dtype != parts[0].dtype)
        raise CollateError(
            f"field {rows.name!r}: sample {rows.keys[0]!r} has dtype {parts[0].dtype} and sample {rows.keys[i]!r} has "
            f'{parts[i].dtype}; bring them to one dtype in a Map, or take collate={{{rows.name!r}: "list"}}'
        )
    common = _common_dtype(parts, names)
    name, storage = dtype_name(common), storage_dtype(dtype_name(common))
    return [
        dataclasses.replace(part, bits=part.bits.view(np.dtype(part.dtype)).astype(common).view(storage), dtype=name)
        for part in parts
    ]


def _common_dtype(parts: list[Dense], names: set[str]) -> np.dtype[Any]:
    """What NumPy takes, but never a float for integers alone."""
    common = np.result_type(*(np.dtype(name) for name in names))
    if common.kind != "f" or "float64" in names:
        return common
    if any(part.dtype == "int64" and part.bits.min(initial=0) < 0 for part in parts):
        raise UnsupportedValueError("integers below 0 and above 2**63 - 1 share no dtype")
    return np.dtype(np.uint64)


def _python(value: Any) -> Any:
    if isinstance(value, Dense):
        if value.bits.ndim:
            raise UnsupportedValueError("some samples hold arrays and others do not")
        return value.bits.view(np.dtype(value.dtype)).item()
    return None if isinstance(value, Missing) else value


def _different_shapes(rows: Rows, parts: Sequence[Dense], i: int) -> str:
    first, second = parts[0].bits.shape, parts[i].bits.shape
    ndims = {part.bits.ndim for part in parts}
    works = ["list"]
    if len({part.bits.shape[1:] for part in parts}) == 1 and ndims != {0}:
        works.insert(0, "ragged")
    if len(ndims) == 1 and ndims != {0}:
        works.insert(0, "pad")
    modes = " or ".join(f'"{mode}"' for mode in works if mode != rows.mode)
    return (
        f"field {rows.name!r}: sample {rows.keys[0]!r} has shape {first} and sample {rows.keys[i]!r} has {second}, "
        f'which collate "{rows.mode}" cannot hold; bring them to one shape with an op such as Resize, '
        f"or take collate={{{rows.name!r}: ...}} with {modes}"
    )


def _mixed(rows: Rows) -> str:
    found = [_describe(value) for value in rows.values]
    i = next(i for i, text in enumerate(found) if text != found[0])
    return (
        f"field {rows.name!r}: sample {rows.keys[0]!r} has {found[0]} and sample {rows.keys[i]!r} has {found[i]}; "
        f'give the op that makes it a default=, or take collate={{{rows.name!r}: "list"}}'
    )


def _describe(value: Any) -> str:
    if isinstance(value, Dense):
        return "a number" if value.bits.ndim == 0 else "an array"
    if isinstance(value, Missing):
        return "nothing"
    return "None" if value is None else f"a {type(value).__name__}"
