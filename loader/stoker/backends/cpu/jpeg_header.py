"""What the markers before a JPEG's pixels say."""

from __future__ import annotations

import struct
from typing import NamedTuple

from stoker.backends.cpu.orientation import UPRIGHT, Orientation, from_exif
from stoker.errors import SampleError

SOI, EOI = b"\xff\xd8", b"\xff\xd9"
_APP1, _SOS = 0xE1, 0xDA
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BARE = frozenset({0x01, *range(0xD0, 0xD9)})
"""Markers without a length."""
_FRAME = struct.Struct(">BHHB")
_USUAL_BYTES = 4096
"""Most headers are shorter; what is shorter is copied once, which makes it quicker to read."""


class JpegHeader(NamedTuple):
    """Size and layout of the picture as stored, and how it is to be seen.

    A decoder may begin at columns that are multiples of ``mcu_width``.
    """

    height: int
    width: int
    channels: int
    precision: int
    mcu_width: int
    orientation: Orientation


def parse(file: bytes | memoryview) -> JpegHeader:
    """Read the markers up to the frame's; EXIF has to come before it. Raises SampleError if there is no whole frame."""
    try:
        return _parse(bytes(file[:_USUAL_BYTES]))
    except IndexError:
        pass
    try:
        return _parse(bytes(file))
    except IndexError:
        raise SampleError(f"the JPEG ends after {len(file)} bytes, before it says how large its picture is") from None


def _parse(file: bytes) -> JpegHeader:
    """Raises IndexError if the bytes end before the frame does."""
    orientation = UPRIGHT
    place = 2
    while True:
        while file[place] != 0xFF:  # libjpeg skips what lies before a marker, too
            place += 1
        while (marker := file[place]) == 0xFF:
            place += 1
        place += 1
        if marker in _BARE:
            continue
        end = place + (file[place] << 8 | file[place + 1])
        if marker in _FRAMES:
            return _frame(file, place + 2, end, orientation)
        if marker == _SOS:
            raise SampleError("the JPEG does not say how large its picture is")
        if marker == _APP1 and file.startswith(b"Exif\0\0", place + 2):
            file[end - 1]  # the block must be there before it is believed
            orientation = from_exif(file[place + 8 : end])
        place = end


def _frame(file: bytes, place: int, end: int, orientation: Orientation) -> JpegHeader:
    """Read the frame header that lies from ``place`` to ``end``."""
    file[end - 1]  # raises IndexError here rather than struct.error below
    if end - place < _FRAME.size:
        raise SampleError("the JPEG's frame header is cut short")
    precision, height, width, channels = _FRAME.unpack_from(file, place)
    if height == 0 or width == 0:
        raise SampleError("the JPEG does not say how large its picture is")
    widest = max(file[place + 7 : end : 3], default=16) >> 4
    return JpegHeader(height, width, channels, precision, 16 if widest <= 2 else 8 * widest, orientation)
