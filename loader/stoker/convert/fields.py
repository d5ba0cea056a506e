"""Values of a record become the bytes of fields; pure.

Text and bytes stay as they are, numbers become digits, arrays ``.npy``, other structures ``.json``. The picture is
named after its format (``jpg``) and the label ``cls``, as WebDataset has them, so that presets find them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stoker.convert.names import safe_field
from stoker.errors import SampleError

PICTURE_NAMES = ("image", "img", "picture", "photo", "jpg", "jpeg", "png", "webp", "image/encoded", "encoded")
LABEL_NAMES = ("cls", "label", "class", "target", "labels", "image/class/label", "fine_label")
"""The names, first choice first, whose columns are named as WebDataset names them."""

_SIGNS = (
    (b"\xff\xd8\xff", "jpg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"II*\0", "tiff"),
    (b"MM\0*", "tiff"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
)


@dataclass(frozen=True, slots=True)
class Json:
    """A structure that is kept as JSON."""

    value: object


Value: TypeAlias = "bytes | memoryview | str | int | float | np.generic | NDArray[Any] | Json"
Content: TypeAlias = bytes | memoryview


def to_fields(values: Mapping[str, Value | None]) -> dict[str, Content]:
    """The fields of a record, in the order of its columns; None is left out.

    Raises SampleError for a value that cannot be kept, two columns of one name, and a record without any.
    """
    present = {name: value for name, value in values.items() if value is not None}
    main = _first(PICTURE_NAMES, {name for name, value in present.items() if extension_of(value) is not None})
    label = _first(LABEL_NAMES, {name for name, value in present.items() if isinstance(value, int | np.integer)})
    fields: dict[str, Content] = {}
    made_of: dict[str, str] = {}
    for name, value in present.items():
        field = _field_name(name, value, main, label)
        if field in fields:
            raise SampleError(f"columns {made_of[field]!r} and {name!r} both make the field {field!r}; leave one out")
        fields[field] = to_bytes(name, value)
        made_of[field] = name
    if not fields:
        raise SampleError("the record has no values")
    return fields


def extension_of(value: object) -> str | None:
    """The extension of the picture format that bytes begin as, or None."""
    if not isinstance(value, bytes | memoryview):
        return None
    start = bytes(value[:12])
    if start[:4] == b"RIFF":
        return "webp" if start[8:] == b"WEBP" else None
    if start[:2] == b"BM":
        return "bmp" if int.from_bytes(start[2:6], "little") == len(value) else None
    return next((extension for sign, extension in _SIGNS if start.startswith(sign)), None)


def to_bytes(name: str, value: Value) -> Content:
    """The bytes of one value."""
    match value:
        case bytes() | memoryview():
            return value
        case str():
            return value.encode("utf-8", "surrogatepass")
        case bool() | np.bool_():
            return b"1" if value else b"0"
        case np.ndarray():
            return npy(value)
        case Json():
            return _json(name, value.value)
    return str(value).encode()


def npy(array: NDArray[Any]) -> bytes:
    """An array as an ``.npy`` file. Raises SampleError for one of Python objects."""
    sink = io.BytesIO()
    try:
        np.lib.format.write_array(sink, np.asarray(array, order="C"), version=(1, 0), allow_pickle=False)
    except ValueError as error:
        raise SampleError(f"an array of {array.dtype} cannot be kept: {error}") from error
    return sink.getvalue()


def _first(names: tuple[str, ...], present: set[str]) -> str | None:
    lower = {name.lower(): name for name in sorted(present, reverse=True)}
    return next((lower[name] for name in names if name in lower), None)


def _field_name(name: str, value: Value, main: str | None, label: str | None) -> str:
    field = safe_field(name)
    extension = extension_of(value)
    if extension is not None:
        return extension if name == main else _with_extension(field, extension)
    if name == label:
        return "cls"
    if isinstance(value, np.ndarray):
        return _with_extension(field, "npy")
    return _with_extension(field, "json") if isinstance(value, Json) else field


def _with_extension(field: str, extension: str) -> str:
    return field if field == extension or field.endswith(f".{extension}") else f"{field}.{extension}"


def _json(name: str, value: object) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        raise SampleError(f"column {name!r} makes no JSON ({error}); leave it out with columns=(…)") from error
