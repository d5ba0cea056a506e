"""A batch as NumPy arrays, torch tensors or JAX arrays, sharing its memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stoker.batch.dtypes import as_numpy, as_torch, storage_dtype
from stoker.batch.ragged import Ragged
from stoker.batch.schema import SAMPLE_COLUMN, STRUCTURE_KEY, Column
from stoker.batch.structure import leaf_names, structure_from_json
from stoker.batch.values import from_json
from stoker.errors import MissingDependencyError

_OF_NUMBERS = frozenset(["tensor", "scalar", "ragged", "arrays"])

Finish: TypeAlias = Callable[[NDArray[Any], str], Any]
"""Turns stored bits and a dtype name into an array of the wanted library."""


def num_bytes(batch: pa.RecordBatch) -> int:
    """Memory that a batch keeps alive."""
    return int(batch.get_total_buffer_size())


def to_numpy(batch: pa.RecordBatch) -> dict[str, Any]:
    """Return the fields as NumPy arrays, by name.

    Arrays are writable and share the batch's memory; only bools of one number a row, and whatever came in memory that
    may not be written (Arrow over Python bytes), are copied. ``"__key__"`` and other texts are lists. Fields under
    collate "ragged" are :class:`Ragged`, under "list" lists of arrays. Nested fields have their form, with columns as
    leaves. bfloat16 needs ``ml_dtypes``; without it, it comes as float32.
    """
    return formed(batch, as_numpy)


def to_torch(batch: pa.RecordBatch, pin_memory: bool = False, device: Any = None) -> dict[str, Any]:
    """Return the fields as torch tensors, by name; otherwise as :func:`to_numpy`.

    Tensors share the batch's memory unless it is pinned or sent to ``device``. ``pin_memory`` needs CUDA; without,
    one warning says so. Dates are int64 counts of their unit.
    """
    try:
        import torch
    except ImportError:
        raise MissingDependencyError("to_torch needs PyTorch: pip install 'stoker[torch]'") from None
    pins = pin_memory and _can_pin(torch)

    def finish(bits: NDArray[Any], dtype: str) -> Any:
        tensor = as_torch(bits, dtype)
        if pins:
            tensor = tensor.pin_memory()
        return tensor if device is None else tensor.to(device, non_blocking=pins)

    return formed(batch, finish)


def to_jax(batch: pa.RecordBatch) -> dict[str, Any]:
    """Return the fields as JAX arrays on the default device, by name; otherwise as :func:`to_numpy`."""
    try:
        import jax.numpy as jnp
    except ImportError:
        raise MissingDependencyError("to_jax needs JAX: pip install jax") from None
    return formed(batch, lambda bits, dtype: jnp.asarray(as_numpy(bits, dtype)))


def _can_pin(torch: Any) -> bool:
    if torch.cuda.is_available():
        return True
    _warn_about_pinning()
    return False


_warned: list[bool] = []


def _warn_about_pinning() -> None:
    if not _warned:
        _warned.append(True)
        text = "pin_memory=True, but torch finds no CUDA device: tensors stay in ordinary memory"
        warnings.warn(text, UserWarning, stacklevel=4)


def numbers(batch: pa.RecordBatch) -> list[list[tuple[NDArray[Any], str]]]:
    """What :func:`formed` gives to its ``finish``, in the same order, column by column; texts have none."""
    found: list[list[tuple[NDArray[Any], str]]] = []

    def finish(bits: NDArray[Any], dtype: str) -> None:
        found[-1].append((bits, dtype))

    for field, array in zip(batch.schema, batch.columns, strict=True):
        column = Column.of(field) or _guess(field)
        if field.name != SAMPLE_COLUMN and column is not None and column.kind in _OF_NUMBERS:
            found.append([])
            _leaf(field, array, finish)
    return found


def formed(batch: pa.RecordBatch, finish: Finish) -> dict[str, Any]:
    """Return the fields, with what ``finish`` makes of stored bits and a dtype name in the place of each array."""
    leaves = {
        field.name: _leaf(field, array, finish)
        for field, array in zip(batch.schema, batch.columns, strict=True)
        if field.name != SAMPLE_COLUMN
    }
    text = (batch.schema.metadata or {}).get(STRUCTURE_KEY)
    return leaves if text is None else _nest(leaves, text)


def _nest(leaves: dict[str, Any], text: bytes) -> dict[str, Any]:
    """Put leaves into the fields they are parts of; a nested field stands where its first leaf stood."""
    structure = structure_from_json(text)
    owners = {leaf: name for name, node in structure.items() for leaf in leaf_names(node)}
    fields: dict[str, Any] = {}
    for leaf, value in leaves.items():
        name = owners.get(leaf)
        if name is None:
            fields[leaf] = value
        elif name not in fields:
            fields[name] = structure[name].build(leaves)
    for name, node in structure.items():
        if name not in fields:  # it has no leaves
            fields[name] = node.build(leaves)
    return fields


def _leaf(field: pa.Field, array: pa.Array, finish: Finish) -> Any:
    column = Column.of(field) or _guess(field)
    match column.kind if column is not None else None:
        case "tensor" if column is not None:
            bits = _flat(array.storage.flatten(), column.dtype)
            return finish(bits.reshape(len(array), *column.shape), column.dtype)
        case "scalar" if column is not None:
            return finish(_numbers(array, column.dtype), column.dtype)
        case "ragged" if column is not None:
            return _ragged(array, column, finish)
        case "arrays":
            return list(_arrays(array, finish))
        case "json":
            return [None if text is None else from_json(text) for text in array.to_pylist()]
    return array.to_pylist()


def _guess(field: pa.Field) -> Column | None:
    """Read a column that Stoker did not make by its Arrow type alone."""
    if isinstance(field.type, pa.FixedShapeTensorType):
        return Column("tensor", str(field.type.value_type.to_pandas_dtype().__name__), tuple(field.type.shape))
    is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    return Column("scalar", field.type.to_pandas_dtype().__name__) if is_number and not field.nullable else None


def _numbers(array: pa.Array, dtype: str) -> NDArray[Any]:
    if dtype == "bool":
        return np.array(array.to_numpy(zero_copy_only=False), np.bool_).view(np.uint8)
    return _flat(array, dtype)


def _flat(array: pa.Array, dtype: str) -> NDArray[Any]:
    """Return the numbers of a flat Arrow array, writable: a view, unless its memory may not be written."""
    storage = np.dtype(storage_dtype(dtype))
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None:
        return np.empty(0, storage)
    numbers = np.frombuffer(buffer, storage, len(array), array.offset * storage.itemsize)
    return numbers if numbers.flags.writeable else numbers.copy()


def _ragged(array: pa.Array, column: Column, finish: Finish) -> Ragged:
    offsets = array.offsets.to_numpy().astype(np.int64)
    entries = array.flatten()
    bits = _flat(entries.flatten() if column.shape else entries, column.dtype)
    values = finish(bits.reshape(-1, *column.shape) if bits.size else _no_entries(offsets, column, bits), column.dtype)
    return Ragged(values, finish(offsets - offsets[0], "int64"))


def _no_entries(offsets: NDArray[np.int64], column: Column, bits: NDArray[Any]) -> NDArray[Any]:
    """Entries without numbers: there may be many, of a shape with a zero in it."""
    return np.empty((int(offsets[-1] - offsets[0]), *column.shape), bits.dtype)


def _arrays(array: pa.StructArray, finish: Finish) -> Iterator[Any]:
    bits, shapes, dtypes = array.flatten()
    joined = _flat(pa.Array.from_buffers(pa.uint8(), _size(bits), [None, bits.buffers()[2]]), "uint8")
    starts = (
        np.frombuffer(bits.buffers()[1], np.int64, len(bits), bits.offset * 8) if len(bits) else np.empty(0, np.int64)
    )
    for start, shape, dtype in zip(starts, shapes.to_pylist(), dtypes.to_pylist(), strict=False):
        if dtype is None:
            yield None
            continue
        storage = np.dtype(storage_dtype(dtype))
        size = int(np.prod(shape, dtype=np.int64)) * storage.itemsize
        yield finish(joined[start : start + size].view(storage).reshape(shape), dtype)


def _size(bits: pa.LargeBinaryArray) -> int:
    buffer = bits.buffers()[2]
    return 0 if buffer is None else int(buffer.size)
