"""Kernel of DecodeImage: tells formats apart by content."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.backends.cpu import jpeg_header, still, turbo
from stoker.backends.cpu.convert import Wanted, convert
from stoker.backends.cpu.jpeg import JpegSource
from stoker.backends.cpu.packages import need
from stoker.backends.cpu.picture import ArraySource, Picture, Source
from stoker.backends.program import Kernel
from stoker.backends.registry import implements
from stoker.errors import SampleError
from stoker.ops.decode_image import DecodeImage
from stoker.sample import Sample

_GZIP = b"\x1f\x8b"
_GZIP_WBITS = 31
_MAX_UNWRAPPED_BYTES = 1 << 30


@implements(DecodeImage)
def decode_image(op: DecodeImage) -> Kernel:
    """Make the kernel; raises MissingDependencyError now rather than at the first picture."""
    for module in ("PIL.Image", "PIL.ImageOps", "cv2", "simplejpeg"):
        need(module)
    turbo.load()
    wanted = Wanted(op.mode, op.dtype, op.background)
    sources, target, label = op.sources, op.target, op.label

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:  # noqa: ARG001  # decoding draws nothing
        field = _first(sources, sample)
        source, sample.conversion = _open(_file(sample.fields, field), wanted, op, label)
        sample.fields[target] = Picture(source)
        if field != target:
            del sample.fields[field]

    return kernel


def _first(sources: tuple[str, ...], sample: Sample) -> str:
    for name in sources:
        if name in sample.fields:
            return name
    if len(sources) == 1:
        raise KeyError(sources[0])
    present = ", ".join(sorted(sample.fields)) or "none"
    raise SampleError(f"none of the fields {', '.join(sources)}; this sample has: {present}")


def _file(fields: dict[str, Any], name: str) -> bytes | memoryview:
    value = fields[name]
    if not isinstance(value, bytes | memoryview):
        raise SampleError(f"field {name!r} holds {type(value).__name__}, expected the bytes of a picture file")
    return _unwrapped(value) if bytes(value[:2]) == _GZIP else value


def _unwrapped(file: bytes | memoryview) -> bytes:
    """Take the gzip wrapping off. Raises SampleError if it is damaged or holds more than 1 GiB."""
    inflater = zlib.decompressobj(wbits=_GZIP_WBITS)
    try:
        inner = inflater.decompress(file, _MAX_UNWRAPPED_BYTES)
    except zlib.error as error:
        raise SampleError(f"gzip-wrapped picture: {error}") from error
    if not inflater.eof:
        raise SampleError(f"gzip-wrapped picture: cut short, or more than {_MAX_UNWRAPPED_BYTES} bytes")
    return inner


def _open(file: bytes | memoryview, wanted: Wanted, op: DecodeImage, label: str) -> tuple[Source, str | None]:
    if len(file) == 0:
        raise SampleError("the picture file is empty")
    if bytes(file[:2]) == jpeg_header.SOI:
        header = jpeg_header.parse(file)
        still.check_pixels(header.height, header.width, op.max_pixels)
        source = JpegSource(file, header, wanted, label, strict=op.strict)
        return source, wanted.conversion(source.model, "uint8")
    decoded, model = still.decode(file, op.max_pixels)
    return ArraySource(convert(decoded, model, wanted)), wanted.conversion(model, str(decoded.dtype))
