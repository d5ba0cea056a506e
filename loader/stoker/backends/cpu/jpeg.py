"""A JPEG file from which windows are decoded."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.backends.cpu import turbo
from stoker.backends.cpu.convert import Model, Wanted, convert
from stoker.backends.cpu.jpeg_header import EOI, JpegHeader
from stoker.backends.cpu.orientation import UPRIGHT
from stoker.backends.cpu.packages import need
from stoker.errors import SampleError
from stoker.ops.geometry import Window

_MODELS: dict[int, Model] = {1: "L", 3: "RGB", 4: "CMYK"}


class JpegSource:
    """The pixels of a JPEG file, as seen, decoded when asked for. Owned by one thread."""

    def __init__(
        self, file: bytes | memoryview, header: JpegHeader, wanted: Wanted, label: str, *, strict: bool
    ) -> None:
        self._file = file
        self._header = header
        self._wanted = wanted
        self._label = label
        self._strict = strict
        self._decoded_channels = 1 if header.channels == 1 and wanted.mode in ("L", "unchanged") else 3
        self.size = header.orientation.seen_size(header.height, header.width)
        self.model = _model(header)
        self.channels = wanted.channels(self.model)
        self.dtype = wanted.numpy_dtype

    def read(self, window: Window) -> NDArray[Any]:
        """Return a window, height × width × channels; it may be overwritten by this thread's next read.

        Raises SampleError, and with ``strict`` does so for damage that lies outside the window too.
        """
        orientation = self._header.orientation
        stored = window if orientation is UPRIGHT else orientation.stored_window(window, *self.size)
        try:
            pixels = self._decode(stored)
        except SampleError as error:
            raise SampleError(error.reason, op=self._label) from error.__cause__
        if not (self._wanted.is_usual and pixels.shape[2] == 3):
            pixels = convert(pixels, "RGB" if pixels.shape[2] == 3 else self.model, self._wanted)
        return pixels if orientation is UPRIGHT else orientation.apply(pixels)

    def _decode(self, window: Window) -> NDArray[np.uint8]:
        header = self._header
        if header.channels == 4:
            return cut(self._inks(), window)
        if not self._strict:
            return self._tolerant(window)
        return self._region(window, header.height)

    def _tolerant(self, window: Window) -> NDArray[np.uint8]:
        """Decode what Pillow decodes; Pillow itself is asked as soon as anything is odd."""
        if bytes(self._file[-2:]) == EOI:
            try:
                return self._region(window, min(self._header.height, window.bottom + 1))
            except SampleError:
                pass
        return cut(by_pillow(self._file), window)

    def _region(self, window: Window, bottom: int) -> NDArray[np.uint8]:
        """Decode a window; damage below row ``bottom`` is not seen, where a part can be decoded at all."""
        library = turbo.load()
        if library is None:
            return cut(self._all(), window)
        region = self._around(window, bottom)
        try:
            pixels = library.decode(self._file, region, self._decoded_channels)
        except SampleError:
            return cut(self._all(), window)  # says what is wrong, or knows a kind that has no parts
        top, left = window.top - region.top, window.left - region.left
        return pixels[top : top + window.height, left : left + window.width]

    def _around(self, window: Window, bottom: int) -> Window:
        """The region to decode, so that its pixels in the window are those of the whole picture.

        Chroma is interpolated between neighbours: one more pixel on each side makes them equal.
        """
        header = self._header
        top, left, _, width = window
        first_row = top - 1 if top else 0
        first_column = (left - 1) // header.mcu_width * header.mcu_width if left else 0
        end = min(header.width, left + width + 1)
        return Window(first_row, first_column, bottom - first_row, end - first_column)

    def _all(self) -> NDArray[np.uint8]:
        return by_simplejpeg(self._file, "GRAY" if self._header.channels == 1 else "RGB")

    def _inks(self) -> NDArray[np.uint8]:
        """Decode four channels as CMYK ink; they are taken to be stored inverted, as Adobe and Pillow do."""
        try:
            stored = by_simplejpeg(self._file, "CMYK")
        except SampleError:
            if self._strict:
                raise
            return by_pillow(self._file)
        return np.bitwise_not(stored)


def _model(header: JpegHeader) -> Model:
    model = _MODELS.get(header.channels)
    if model is None or header.precision != 8:
        raise SampleError(f"a JPEG of {header.channels} channels of {header.precision} bits cannot be decoded")
    return model


def cut(pixels: NDArray[np.uint8], window: Window) -> NDArray[np.uint8]:
    """Return a view of a window."""
    return pixels[window.top : window.bottom, window.left : window.right]


def by_simplejpeg(file: bytes | memoryview, colours: str) -> NDArray[np.uint8]:
    """Decode all, strictly. Raises SampleError for any damage."""
    try:
        pixels: NDArray[np.uint8] = need("simplejpeg").decode_jpeg(file, colorspace=colours)
    except ValueError as error:
        raise SampleError(str(error)) from error
    return pixels


def by_pillow(file: bytes | memoryview) -> NDArray[np.uint8]:
    """Decode all as Pillow does, which overlooks wrong bytes between markers. Raises SampleError."""
    module = need("PIL.Image")
    try:
        with module.open(io.BytesIO(file), formats=("JPEG", "MPO")) as image:
            pixels = np.asarray(image)
    except (OSError, SyntaxError, ValueError, module.DecompressionBombError) as error:
        raise SampleError(str(error)) from error
    return pixels.reshape(*pixels.shape[:2], -1)
