"""``tf.train.Example`` parsed from its bytes, without TensorFlow or protobuf; pure.

After ``tensorflow/core/example/{example,feature}.proto`` and protobuf's wire format. Repeated numbers may be packed
or not; a map's entry that comes twice counts as its last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.convert.fields import Value
from stoker.errors import SampleError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3

Feature = list[memoryview] | NDArray[Any]


def parse(body: memoryview) -> dict[str, Feature]:
    """The features by name, sorted. Raises SampleError if the bytes are no Example."""
    found: dict[str, Feature] = {}
    for number, content in _fields(body):
        if number == 2:
            raise SampleError("this is a tf.train.SequenceExample, which is not converted; only Example is")
        if number != 1 or not isinstance(content, memoryview):
            raise SampleError(f"no tf.train.Example: its message has a field {number}")
        for entry_number, entry in _fields(content):
            if entry_number == 1 and isinstance(entry, memoryview):
                name, feature = _entry(entry)
                found[name] = feature
    return dict(sorted(found.items()))


def values(features: dict[str, Feature], wanted: frozenset[str] | None = None) -> dict[str, Value]:
    """One value per feature: a single one as it is, several numbers as an array, several bytes under numbers."""
    found: dict[str, Value] = {}
    for name, feature in features.items():
        if wanted is not None and name not in wanted:
            continue
        if isinstance(feature, list):
            if len(feature) == 1:
                found[name] = feature[0]
            else:
                found.update({f"{name}.{number}": content for number, content in enumerate(feature)})
        elif len(feature):
            found[name] = feature[0] if len(feature) == 1 else feature
    return found


def _entry(entry: memoryview) -> tuple[str, Feature]:
    name, feature = "", memoryview(b"")
    for number, content in _fields(entry):
        if number == 1 and isinstance(content, memoryview):
            name = str(content, "utf-8", "backslashreplace")
        elif number == 2 and isinstance(content, memoryview):
            feature = content
    kinds = [(number, content) for number, content in _fields(feature) if isinstance(content, memoryview)]
    if not kinds:
        return name, []
    kind, listed = kinds[-1]
    match kind:
        case _ if kind == _BYTES_LIST:
            return name, [content for _, content in _fields(listed) if isinstance(content, memoryview)]
        case _ if kind == _FLOAT_LIST:
            packed = b"".join(content for _, content in _fields(listed) if isinstance(content, memoryview))
            if len(packed) % 4:
                raise SampleError(f"feature {name!r}: {len(packed)} bytes of floats of 4 bytes")
            return name, np.frombuffer(packed, "<f4")
        case _ if kind == _INT64_LIST:
            return name, np.array(list(_integers(listed)), np.uint64).view(np.int64)
    raise SampleError(f"feature {name!r} is of the unknown kind {kind}")


def _integers(listed: memoryview) -> Iterator[int]:
    for _, content in _fields(listed):
        if isinstance(content, int):
            yield content
            continue
        position = 0
        while position < len(content):
            value, position = _varint(content, position)
            yield value


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Number and content of each field: an integer for a varint, else bytes."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        wire = tag & 7
        if wire == _VARINT:
            value, position = _varint(message, position)
            yield tag >> 3, value
            continue
        if wire == _BYTES:
            size, position = _varint(message, position)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise SampleError(f"no tf.train.Example: wire type {wire} at byte {position}")
        stop = position + size
        if stop > len(message):
            raise SampleError(f"no tf.train.Example: a field of {size} bytes where {len(message) - position} are left")
        yield tag >> 3, message[position:stop]
        position = stop


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(message) and shift < 70:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
    raise SampleError(f"no tf.train.Example: a number breaks off at byte {position}")
