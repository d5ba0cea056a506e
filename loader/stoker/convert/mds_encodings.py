"""Values in MosaicML's MDS shards, decoded; pure.

After the published format of ``mosaicml-streaming`` (``streaming/base/format/mds``): little-endian numbers, text in
UTF-8, pictures as files or as raw pixels behind their size and mode, arrays behind the dtype and shape that the
encoding's name does not give.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np

from stoker.backends.cpu.packages import need
from stoker.convert.fields import Value, npy
from stoker.errors import SampleError, SpecError

Decode = Callable[[memoryview], Value]

_SCALARS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
_DTYPES = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32", 34: "float32",
    64: "uint64", 65: "int64", 66: "float64",
}  # fmt: skip
_SHAPE_DTYPES = ("<u1", "<u2", "<u4", "<u8")
_PNG_MODES = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I;16"})
_PIL_HEADER_BYTES = 12


def decoder(column: str, encoding: str) -> Decode:
    """How a column of this encoding is decoded. Raises SpecError for one that is not read."""
    name, _, argument = encoding.partition(":")
    if name in _DECODERS:
        return _DECODERS[name]
    if name in _SCALARS:
        return _scalar(name)
    if name == "ndarray":
        return _ndarray(argument)
    if name == "pkl":
        raise SpecError(
            f"column {column!r} holds pickles, which run code when they are read, so they are not; leave it out: "
            "--columns with the others"
        )
    known = ", ".join([*_DECODERS, *_SCALARS, "ndarray"])
    raise SpecError(f"column {column!r} has the unknown MDS encoding {encoding!r}; known: {known}")


def field_name(column: str, encoding: str) -> str:
    """The column's name; JSON says that it is."""
    return f"{column}.json" if encoding == "json" and not column.lower().endswith("json") else column


def _integer(raw: memoryview) -> int:
    try:
        return int(_text(raw))
    except ValueError as error:
        raise SampleError(f"expected digits, found {bytes(raw[:40])!r}") from error


def _text(raw: memoryview) -> str:
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError as error:
        raise SampleError(f"expected text, found bytes that are no UTF-8 ({error.reason})") from error


def _scalar(name: str) -> Decode:
    dtype = np.dtype(name).newbyteorder("<")

    def decode(raw: memoryview) -> Value:
        if len(raw) != dtype.itemsize:
            raise SampleError(f"expected {dtype.itemsize} bytes of {name}, found {len(raw)}")
        found: Value = np.frombuffer(raw, dtype)[0]
        return found

    return decode


def _pil(raw: memoryview) -> Value:
    """Raw pixels as a PNG file, which loses nothing, or as an array for modes that PNG has not."""
    image_module = need("PIL.Image")
    if len(raw) < _PIL_HEADER_BYTES:
        raise SampleError(f"expected a picture behind {_PIL_HEADER_BYTES} bytes, found {len(raw)}")
    width, height, mode_bytes = np.frombuffer(raw[:_PIL_HEADER_BYTES], "<u4").tolist()
    start = _PIL_HEADER_BYTES + mode_bytes
    mode = bytes(raw[_PIL_HEADER_BYTES:start]).decode("ascii", "replace")
    try:
        image = image_module.frombytes(mode, (width, height), bytes(raw[start:]))
        if mode not in _PNG_MODES:
            return npy(np.asarray(image))
        sink = io.BytesIO()
        image.save(sink, format="PNG")
    except (ValueError, OSError, KeyError, MemoryError) as error:
        raise SampleError(f"raw pixels of mode {mode!r}, {width} × {height}: {error}") from error
    return sink.getvalue()


def _ndarray(argument: str) -> Decode:
    dtype_text, _, shape_text = argument.partition(":")
    fixed_shape = tuple(int(size) for size in shape_text.split(",")) if shape_text else None

    def decode(raw: memoryview) -> Value:
        position = 0
        try:
            name = dtype_text
            if not name:
                name, position = _DTYPES[raw[0]], 1
            shape: tuple[int, ...] | None = fixed_shape
            if shape is None:
                shape, position = _shape(raw, position)
            array: Any = np.frombuffer(raw[position:], np.dtype(name).newbyteorder("<")).reshape(shape)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise SampleError(f"no array of ndarray:{argument} in {len(raw)} bytes: {error}") from error
        made: Value = array
        return made

    return decode


def _shape(raw: memoryview, position: int) -> tuple[tuple[int, ...], int]:
    packed = raw[position]
    dtype = np.dtype(_SHAPE_DTYPES[packed % 4])
    start = position + 1
    stop = start + (packed >> 2) * dtype.itemsize
    return tuple(np.frombuffer(raw[start:stop], dtype).tolist()), stop


_DECODERS: dict[str, Decode] = {
    "bytes": bytes,
    "jpeg": bytes,
    "png": bytes,
    "json": bytes,
    "str": _text,
    "str_float": _text,
    "str_decimal": _text,
    "str_int": _integer,
    "int": _scalar("int64"),
    "pil": _pil,
}
