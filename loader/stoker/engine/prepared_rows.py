"""A sample behind the deterministic ops, as bytes.

A row is the length of a head (8 bytes), the head, which is JSON, and the buffers that it names by offset, each on a
64-byte boundary. Nothing in it is code: a row may come from a bucket that others write to. What comes out has the types
and values that went in; arrays are C-contiguous, lie in the row's bytes, and cannot be written to.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stoker.errors import SampleError
from stoker.sample import Deferred, Write

_ALIGNMENT: Final = 64
_HEAD: Final = struct.Struct("<Q")
_NUMBERS: Final = "biufc"


class UnstorableError(TypeError):
    """A field holds a value that cannot be kept; the text names both."""


@dataclass(frozen=True, slots=True)
class Row:
    """A sample that is kept, or what became of it: ``error`` (reason, op), or the index of the op that refused it."""

    key: str
    fields: Mapping[str, Any]
    conversion: str | None = None
    error: tuple[str, str | None] | None = None
    filtered: int | None = None


class Damaged:
    """A picture whose pixels cannot be made, as the op that would have made them said. A Deferred."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], reason: str, op: str | None) -> None:
        self.shape = shape
        self.dtype = dtype
        self.reason = reason
        self.op = op

    def writer(self, out: NDArray[Any]) -> Write:  # noqa: ARG002  # nothing is written
        """Prepare to fail."""
        return self._fail

    def array(self) -> NDArray[Any]:
        """Raise SampleError."""
        self._fail()
        raise AssertionError("unreachable")

    def _fail(self) -> None:
        raise SampleError(self.reason, op=self.op)


def pack(row: Row) -> bytes:
    """The bytes of a row; pixels that are not made yet are made. Raises UnstorableError."""
    parts = _Parts()
    fields = [[name, parts.tree(name, value)] for name, value in row.fields.items()]
    head = {
        "key": row.key,
        "fields": fields,
        "conversion": row.conversion,
        "error": row.error,
        "filtered": row.filtered,
    }
    text = json.dumps(head).encode()
    start = _aligned(_HEAD.size + len(text))
    packed = bytearray(start + parts.num_bytes)
    _HEAD.pack_into(packed, 0, len(text))
    packed[_HEAD.size : _HEAD.size + len(text)] = text
    for offset, buffer in parts.buffers:
        packed[start + offset : start + offset + buffer.nbytes] = buffer
    return bytes(packed)


def unpack(packed: bytes | memoryview) -> Row:
    """The row of :func:`pack`; over the bytes, which are to stay as they are."""
    (length,) = _HEAD.unpack_from(packed)
    head = json.loads(bytes(packed[_HEAD.size : _HEAD.size + length]))
    body = memoryview(packed)[_aligned(_HEAD.size + length) :]
    error = head["error"]
    fields = {name: _value(tree, body) for name, tree in head["fields"]}
    return Row(
        head["key"], fields, head["conversion"], None if error is None else (error[0], error[1]), head["filtered"]
    )


class _Parts:
    """Collects the buffers of a row while its head is made."""

    def __init__(self) -> None:
        self.buffers: list[tuple[int, memoryview]] = []
        self.num_bytes = 0

    def tree(self, name: str, value: Any) -> Any:
        """A value as JSON: plain ones as themselves, lists as lists, all else as an object of one entry."""
        kind = type(value)
        if value is None or kind in (str, bool, int, float):
            return value
        if kind is list:
            return [self.tree(name, item) for item in value]
        if kind is tuple:
            return {"tuple": [self.tree(name, item) for item in value]}
        if kind is dict and all(type(key) is str for key in value):
            return {"dict": [[key, self.tree(name, item)] for key, item in value.items()]}
        if kind in (bytes, memoryview):
            return {"bytes": self._add(memoryview(bytes(value) if kind is memoryview else value))}
        if kind is np.ndarray or isinstance(value, (np.generic, Deferred)):
            return self._numbers(name, value)
        raise _unstorable(name, value)

    def _numbers(self, name: str, value: Any) -> Any:
        if isinstance(value, Deferred):
            try:
                value = value.array()
            except SampleError as error:
                return {"damaged": [value.shape, value.dtype.str, error.reason, error.op]}
        array = np.asarray(value)
        if array.dtype.kind not in _NUMBERS or np.dtype(array.dtype.str) != array.dtype:
            raise _unstorable(name, value)
        place = self._add(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return {"scalar" if isinstance(value, np.generic) else "array": [array.dtype.str, array.shape, place[0]]}

    def _add(self, buffer: memoryview) -> tuple[int, int]:
        offset = self.num_bytes
        self.buffers.append((offset, buffer))
        self.num_bytes = _aligned(offset + buffer.nbytes)
        return offset, buffer.nbytes


def _value(tree: Any, body: memoryview) -> Any:
    if isinstance(tree, list):
        return [_value(item, body) for item in tree]
    if not isinstance(tree, dict):
        return tree
    ((kind, found),) = tree.items()
    match kind:
        case "tuple":
            value: Any = tuple(_value(item, body) for item in found)
        case "dict":
            value = {key: _value(item, body) for key, item in found}
        case "bytes":
            value = bytes(body[found[0] : found[0] + found[1]])
        case "damaged":
            value = Damaged(tuple(found[0]), np.dtype(found[1]), found[2], found[3])
        case "scalar":
            value = _array(found, body)[()]
        case _:
            value = _array(found, body)
    return value


def _array(found: Any, body: memoryview) -> NDArray[Any]:
    dtype, shape, offset = found
    count = int(np.prod(shape, dtype=np.int64))
    flat = np.frombuffer(body, dtype, count, offset) if count else np.frombuffer(b"", dtype)
    return flat.reshape(shape)


def _unstorable(name: str, value: Any) -> UnstorableError:
    kind = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__qualname__}"
    return UnstorableError(f"field {name!r} holds {kind}, which a decoded cache cannot keep")


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
