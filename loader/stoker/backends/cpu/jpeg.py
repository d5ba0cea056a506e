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
from stoker.backends.cpu.picture import Read
from stoker.errors import SampleError
from stoker.ops.geometry import Window

_FEWEST_COLUMNS = 3
"""Of a narrower region libjpeg keeps one column of chroma, and repeats it where it would interpolate."""
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
        self.strict = strict
        self._decoded_channels = 1 if header.channels == 1 and wanted.mode in ("L", "unchanged") else 3
        self.size = header.orientation.seen_size(header.height, header.width)
        self.model = _model(header)
        self.channels = wanted.channels(self.model)
        self.dtype = wanted.numpy_dtype

    def reader(self, window: Window) -> Read:
        """Prepare to read a window, height × width × channels; it may be overwritten by this thread's next read.

        The call raises SampleError, and with ``strict`` does so for damage that lies outside the window too.
        """
        orientation, wanted = self._header.orientation, self._wanted
        if orientation is UPRIGHT and wanted.is_usual and self._header.channels == 3:
            return self._decoder(window)
        decode = self._decoder(window if orientation is UPRIGHT else orientation.stored_window(window, *self.size))

        def read() -> NDArray[Any]:
            pixels: NDArray[Any] = decode()
            pixels = convert(pixels, "RGB" if pixels.shape[2] == 3 else self.model, wanted)
            return pixels if orientation is UPRIGHT else orientation.apply(pixels)

        return read

    @property
    def pixels(self) -> int:
        """Height times width."""
        return self.size[0] * self.size[1]

    def plain(self) -> bytes | memoryview | None:
        """The file, if a decoder that turns nothing and knows no ink makes the same of it; None if it may not.

        Without ``strict`` a file that does not end as it should is none: Pillow is asked what to think of it.
        """
        header = self._header
        usual = header.orientation is UPRIGHT and self._wanted.is_usual and header.channels in (1, 3)
        return self._file if usual and (self.strict or bytes(self._file[-2:]) == EOI) else None

    def check(self) -> None:
        """Look for damage as ``strict`` does, without making more pixels than need be. Raises SampleError."""
        if self.strict:
            self._decoder(Window(0, 0, self._header.height, min(self._header.width, self._header.mcu_width)))()

    def _decoder(self, window: Window) -> Read:
        """Prepare to decode a window as it is stored."""
        library = turbo.load() if self._header.channels != 4 else None
        last_row = self._header.height if self.strict else min(self._header.height, window.bottom + 1)
        region = self._around(window, last_row)
        quick = None
        if library is not None and (self.strict or bytes(self._file[-2:]) == EOI):
            quick = library.reader(self._file, region, self._decoded_channels)
        top, left, height, width = window
        rows, columns = (
            slice(top - region.top, top - region.top + height),
            slice(left - region.left, left - region.left + width),
        )

        def decode() -> NDArray[np.uint8]:
            if quick is not None:
                try:
                    return quick()[rows, columns]
                except SampleError:
                    pass  # the slower ways say what is wrong, or know a kind of JPEG that has no parts
            try:
                return cut(self._whole(), window)
            except SampleError as error:
                raise SampleError(error.reason, op=self._label) from error.__cause__

        return decode

    def _whole(self) -> NDArray[np.uint8]:
        """Decode all; without ``strict``, Pillow is asked as soon as anything is odd."""
        if self._header.channels == 4:
            return self._inks()
        if self.strict:
            return self._all()
        if bytes(self._file[-2:]) == EOI:
            try:
                return self._all()
            except SampleError:
                pass
        return by_pillow(self._file)

    def _around(self, window: Window, bottom: int) -> Window:
        """The region to decode, so that its pixels in the window are those of the whole picture.

        Chroma is interpolated between neighbours: one more pixel on each side makes them equal.
        """
        header = self._header
        top, left, _, width = window
        first_row = top - 1 if top else 0
        first_column = (left - 1) // header.mcu_width * header.mcu_width if left else 0
        end = min(header.width, left + width + 1)
        if end - first_column < _FEWEST_COLUMNS:
            end = min(header.width, first_column + _FEWEST_COLUMNS)
            if end - first_column < _FEWEST_COLUMNS and first_column:
                first_column -= header.mcu_width
        return Window(first_row, first_column, bottom - first_row, end - first_column)

    def _all(self) -> NDArray[np.uint8]:
        return by_simplejpeg(self._file, "GRAY" if self._header.channels == 1 else "RGB")

    def _inks(self) -> NDArray[np.uint8]:
        """Decode four channels as CMYK ink; they are taken to be stored inverted, as Adobe and Pillow do."""
        try:
            stored = by_simplejpeg(self._file, "CMYK")
        except SampleError:
            if self.strict:
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
    """Decode all as Pillow does, which overlooks wrong bytes between markers. Raises SampleError.

    MPO is opened by Pillow's JPEG, and is no format of its own: to ask for it raises KeyError.
    """
    module = need("PIL.Image")
    try:
        with module.open(io.BytesIO(file), formats=("JPEG",)) as image:
            pixels = np.asarray(image)
    except module.UnidentifiedImageError as error:  # its text has an address in memory
        raise SampleError("Pillow cannot tell what this file is") from error
    except (OSError, SyntaxError, ValueError, module.DecompressionBombError) as error:
        raise SampleError(str(error)) from error
    return pixels.reshape(*pixels.shape[:2], -1)
