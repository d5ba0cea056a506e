"""Kernels for fields that are not pictures."""

from __future__ import annotations

import copy
import difflib
import io
import json
import re
import struct
import zipfile
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.backends.program import Kernel
from stoker.backends.registry import implements
from stoker.errors import SampleError
from stoker.ops.absent import UNSET, FieldOp
from stoker.ops.decode_json import DecodeJson
from stoker.ops.decode_numpy import DecodeNumpy
from stoker.ops.label import Label
from stoker.ops.rename import Rename
from stoker.ops.select import Select
from stoker.sample import Sample

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NPY = b"\x93NUMPY"
_ZIP = b"PK\x03\x04"
_EMPTY_ZIP = b"PK\x05\x06"


@implements(Label)
def label(op: Label) -> Kernel:
    """Text to int64."""
    numbers = op.numbers
    return _field_kernel(op, lambda value: _number(value) if numbers is None else _class(value, numbers), np.int64)


@implements(DecodeJson)
def decode_json(op: DecodeJson) -> Kernel:
    """Text to a plain value."""
    return _field_kernel(op, _json, copy.deepcopy)


@implements(DecodeNumpy)
def decode_numpy(op: DecodeNumpy) -> Kernel:
    """A file to an array over its bytes."""
    return _field_kernel(op, _array_file, np.array)


@implements(Select)
def select(op: Select) -> Kernel:
    """Some fields, without the others."""

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:  # noqa: ARG001  # draws nothing
        names = [name for name in op.fields if name in sample.fields] if op.missing == "skip" else op.fields
        sample.fields = {name: sample.fields[name] for name in names}

    return kernel


@implements(Rename)
def rename(op: Rename) -> Kernel:
    """Fields under other names, in their places."""

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:  # noqa: ARG001  # draws nothing
        fields = sample.fields
        for old, new in op.names.items():
            if old not in fields and op.missing == "error":
                raise KeyError(old)
            if old in fields and new in fields and new not in op.names:
                raise SampleError(f"cannot rename {old!r} to {new!r}: the sample has a field of this name")
        sample.fields = {op.names.get(name, name): value for name, value in fields.items()}

    return kernel


def _field_kernel(op: FieldOp, read: Callable[[Any], Any], make_default: Callable[[Any], Any]) -> Kernel:
    """Make a kernel that replaces a field by what ``read`` makes of it, or by the op's default."""
    field, target, moves = op.field, op.target, op.target != op.field

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:  # noqa: ARG001  # draws nothing
        if field in sample.fields:
            sample.fields[target] = read(sample.fields[field])
            if moves:
                del sample.fields[field]
        elif op.default is not UNSET:
            sample.fields[target] = make_default(op.default)
        elif op.missing == "error":
            raise KeyError(field)

    return kernel


def _number(value: Any) -> np.int64:
    if isinstance(value, (int, np.integer)):
        number = int(value)
    else:
        text = _text(value)
        if not _INTEGER.fullmatch(text):
            raise SampleError(f"expected an integer, found {_shown(text)}")
        number = int(text) if len(text) < 30 else 2**64
    if not -(2**63) <= number < 2**63:
        raise SampleError(f"expected an integer of 64 bits, found {_shown(str(value))}")
    return np.int64(number)


def _class(value: Any, numbers: dict[str, int]) -> np.int64:
    name = _text(value)
    if name not in numbers:
        close = difflib.get_close_matches(name, numbers, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join([*numbers][:10])}"
        raise SampleError(f"no class is named {_shown(name)}; {hint}")
    return np.int64(numbers[name])


def _text(value: Any) -> str:
    """Read bytes or text, without white space around it."""
    if isinstance(value, str):
        return value.strip()
    try:
        return str(_bytes(value), "utf-8").strip()
    except UnicodeDecodeError:
        raise SampleError(f"expected text, found the bytes {_shown(bytes(value))}") from None


def _bytes(value: Any) -> bytes | memoryview:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return memoryview(value).cast("B")
    raise SampleError(f"expected raw bytes, found a {type(value).__name__}; was the field decoded before?")


def _shown(value: str | bytes) -> str:
    return repr(value[:40]) + ("…" if len(value) > 40 else "")


def _json(value: Any) -> Any:
    try:
        return json.loads(value if isinstance(value, str) else bytes(_bytes(value)))
    except (ValueError, RecursionError) as error:
        raise SampleError(f"not JSON: {error}") from error


def _array_file(value: Any) -> Any:
    content = memoryview(_bytes(value))
    start = bytes(content[:6])
    if start == _NPY:
        return _npy(content)
    if start[:4] in (_ZIP, _EMPTY_ZIP):
        return _npz(content)
    raise SampleError(f"not an .npy or .npz file: begins with {start!r}")


def _npz(content: memoryview) -> dict[str, NDArray[Any]]:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as members:
            return dict(members)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, KeyError) as error:
        raise SampleError(f"not an .npz file: {error}") from error


def _npy(content: memoryview) -> NDArray[Any]:
    """Read an array as a view of the file's bytes."""
    layout, width = ("<H", 2) if bytes(content[6:7]) == b"\x01" else ("<I", 4)
    start = 8 + width
    if len(content) < start:
        raise SampleError(f"not an .npy file: {len(content)} bytes are less than its header")
    start += struct.unpack_from(layout, content, 8)[0]
    dtype, shape, is_fortran = _npy_header(bytes(content[:start]))
    expected = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if len(content) - start < expected:
        raise SampleError(f"cut short: expected {expected} bytes of {dtype}{shape}, found {len(content) - start}")
    flat = np.frombuffer(content, dtype, int(np.prod(shape, dtype=np.int64)), start) if expected else np.empty(0, dtype)
    return flat.reshape(shape[::-1]).T if is_fortran else flat.reshape(shape)


@lru_cache(maxsize=256)  # most files of a data set have the same few headers
def _npy_header(header: bytes) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    file = io.BytesIO(header)
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, is_fortran, dtype = read(file)
    except ValueError as error:
        raise SampleError(f"not an .npy file: {error}") from error
    if dtype.hasobject:
        raise SampleError(f"holds pickled objects (dtype {dtype}), which are never read from data")
    return dtype, shape, is_fortran
