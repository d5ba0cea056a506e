"""How a picture that is stored rotated or mirrored is to be seen (EXIF orientation)."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stoker.ops.geometry import Window

_TAG = 0x0112
_SHORT = 3


class Orientation(NamedTuple):
    """From stored to seen: rows and columns change places, then the result is mirrored."""

    transpose: bool
    horizontal: bool
    vertical: bool

    def seen_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width as seen, of a picture stored as ``height`` × ``width``."""
        return (width, height) if self.transpose else (height, width)

    def stored_window(self, window: Window, seen_height: int, seen_width: int) -> Window:
        """Where a window of the picture as seen lies in the picture as stored."""
        turned = window.mirrored(seen_height, seen_width, horizontal=self.horizontal, vertical=self.vertical)
        return turned.transposed() if self.transpose else turned

    def apply(self, pixels: NDArray[Any]) -> NDArray[Any]:
        """Return stored pixels (height × width × channels) as seen; a view where that is possible."""
        if self.transpose:
            pixels = pixels.transpose(1, 0, 2)
        rows = slice(None, None, -1 if self.vertical else 1)
        columns = slice(None, None, -1 if self.horizontal else 1)
        return pixels[rows, columns]


UPRIGHT = Orientation(transpose=False, horizontal=False, vertical=False)

_BY_NUMBER = {
    1: UPRIGHT,
    2: Orientation(transpose=False, horizontal=True, vertical=False),
    3: Orientation(transpose=False, horizontal=True, vertical=True),
    4: Orientation(transpose=False, horizontal=False, vertical=True),
    5: Orientation(transpose=True, horizontal=False, vertical=False),
    6: Orientation(transpose=True, horizontal=True, vertical=False),
    7: Orientation(transpose=True, horizontal=True, vertical=True),
    8: Orientation(transpose=True, horizontal=False, vertical=True),
}


def by_number(number: int) -> Orientation:
    """Return the orientation of this EXIF number; upright for a number that EXIF does not know."""
    return _BY_NUMBER.get(number, UPRIGHT)


def from_exif(block: bytes) -> Orientation:
    """Read the orientation from an EXIF block, which begins with its byte order; upright when there is none.

    A damaged block says nothing about pixels and counts as none.
    """
    found = _find(block)
    return UPRIGHT if found is None else by_number(found.number)


def without_orientation(block: bytes) -> bytes:
    """Return an EXIF block, or a whole TIFF file, that asks for no rotation."""
    found = _find(block)
    if found is None:
        return block
    return block[: found.place] + struct.pack(f"{found.order}H", 1) + block[found.place + 2 :]


class _Entry(NamedTuple):
    order: str
    place: int
    number: int


def _find(block: bytes) -> _Entry | None:
    """Find the orientation in the first directory."""
    order = {b"II": "<", b"MM": ">"}.get(block[:2])
    if order is None:
        return None
    try:
        (directory,) = struct.unpack_from(f"{order}I", block, 4)
        (num_entries,) = struct.unpack_from(f"{order}H", block, directory)
        for entry in range(directory + 2, directory + 2 + 12 * num_entries, 12):
            tag, kind, _, number = struct.unpack_from(f"{order}HHIH", block, entry)
            if tag == _TAG:
                return _Entry(order, entry + 8, number) if kind == _SHORT else None
    except struct.error:
        return None
    return None


def upright(pixels: NDArray[Any], orientation: Orientation) -> NDArray[Any]:
    """Return the pixels as seen, contiguous."""
    return np.ascontiguousarray(orientation.apply(pixels))
