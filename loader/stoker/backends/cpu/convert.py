"""Colours and depths of decoded pixels, as asked for."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stoker.backends.cpu.packages import need
from stoker.ops.decode_image import Mode

Model = Literal["L", "LA", "RGB", "RGBA", "CMYK"]
"""What the channels of decoded pixels mean; CMYK is ink, 0 is none."""

_DTYPES: dict[str, np.dtype[Any]] = {"uint8": np.dtype(np.uint8), "uint16": np.dtype(np.uint16)}
_CHANNELS: dict[str, int] = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}


class Wanted(NamedTuple):
    """What DecodeImage was asked for."""

    mode: Mode
    dtype: Literal["uint8", "uint16"]
    background: tuple[int, int, int] | None

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The dtype of the result."""
        return _DTYPES[self.dtype]

    @property
    def is_usual(self) -> bool:
        """Whether decoded colours need no change."""
        return self.mode == "RGB" and self.dtype == "uint8"

    def conversion(self, model: Model, dtype: str) -> str | None:
        """What has to be changed in pixels of this model and dtype, in words; None if nothing has."""
        mode = None if self.mode in ("unchanged", model) else f"{model} to {self.mode}"
        depth = None if self.dtype == dtype else f"{dtype} to {self.dtype}"
        return ", ".join(filter(None, (mode, depth))) or None

    def channels(self, model: Model) -> int:
        """How many channels the result has for a file of this model."""
        return _CHANNELS[model if self.mode == "unchanged" else self.mode]


def convert(pixels: NDArray[Any], model: Model, wanted: Wanted) -> NDArray[Any]:
    """Return pixels (height × width × channels, uint8 or uint16) in the wanted mode and dtype; maybe the same array."""
    if wanted.mode not in ("unchanged", model):
        pixels, model = _without_ink(pixels, model)
        pixels = _in_mode(pixels, model, wanted)
    return _in_depth(pixels, wanted.dtype)


def _in_mode(pixels: NDArray[Any], model: Model, wanted: Wanted) -> NDArray[Any]:
    alpha = pixels[..., -1:] if model in ("LA", "RGBA") else None
    colour = pixels if alpha is None else pixels[..., :-1]
    if wanted.mode == "L":
        flat = _on_background(colour, alpha, wanted)
        return flat if flat.shape[2] == 1 else luma(flat)
    if wanted.mode == "RGB":
        return _coloured(_on_background(colour, alpha, wanted))
    opaque = np.full((*pixels.shape[:2], 1), np.iinfo(pixels.dtype).max, pixels.dtype)
    return np.concatenate([_coloured(colour), opaque if alpha is None else alpha], axis=2)


def _without_ink(pixels: NDArray[Any], model: Model) -> tuple[NDArray[Any], Model]:
    if model != "CMYK":
        return pixels, model
    image = need("PIL.Image").frombytes("CMYK", pixels.shape[1::-1], pixels.tobytes())
    return np.asarray(image.convert("RGB")), "RGB"


def _coloured(pixels: NDArray[Any]) -> NDArray[Any]:
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels


def _on_background(colour: NDArray[Any], alpha: NDArray[Any] | None, wanted: Wanted) -> NDArray[Any]:
    """Lay the colour on the background where it is transparent; with no background, alpha is left off."""
    if alpha is None or wanted.background is None:
        return colour
    full = int(np.iinfo(colour.dtype).max)
    behind = np.array(wanted.background, np.uint64) * (full // 255)
    weight = alpha.astype(np.uint64)
    mixed = _coloured(colour) * weight + behind * (full - weight)
    return ((mixed + full // 2) // full).astype(colour.dtype)


def luma(pixels: NDArray[Any]) -> NDArray[Any]:
    """Return brightness as Pillow computes it (ITU-R 601-2), one channel."""
    if pixels.dtype == np.uint8:
        grey = np.asarray(need("PIL.Image").fromarray(np.ascontiguousarray(pixels)).convert("L"))
        return grey[..., None]
    wide = pixels.astype(np.uint32)
    total = wide[..., 0] * 19595 + wide[..., 1] * 38470 + wide[..., 2] * 7471 + 0x8000
    return (total >> 16).astype(pixels.dtype)[..., None]


def _in_depth(pixels: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Scale full range to full range: 257 steps of 16 bits make one of 8."""
    if pixels.dtype == dtype:
        return pixels
    if dtype == "uint16":
        return pixels.astype(np.uint16) * np.uint16(257)
    return ((pixels.astype(np.uint32) + 128) // 257).astype(np.uint8)
