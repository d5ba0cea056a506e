"""The test pictures are what they claim to be, by Pillow's word."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image, ImageOps

from support import pictures


def rgb(payload: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(payload))).convert("RGB")
    return np.asarray(image).astype(np.int64)


@pytest.mark.parametrize("make", [pictures.cmyk_jpeg, pictures.ycck_jpeg, pictures.four_channel_jpeg, pictures.jpeg])
def test_the_same_picture_in_another_colour_space_looks_the_same(make: Callable[[int], bytes]) -> None:
    assert np.abs(rgb(make(0)) - pictures.pixels(0)).mean() < 4


def test_the_odd_ones_decode_but_for_the_gzipped() -> None:
    odd = pictures.odd()
    wrapped = odd.pop("gzip-wrapped.jpg")
    assert wrapped[:2] == b"\x1f\x8b"
    shapes = {name: rgb(payload).shape for name, payload in odd.items()}
    assert shapes["exif6.jpg"] == (64, 48, 3)
    assert shapes["long.jpg"] == (10, 20_000, 3)


@pytest.mark.parametrize("name", sorted(pictures.broken()))
def test_the_broken_ones_do_not_decode(name: str) -> None:
    with pytest.raises((OSError, SyntaxError)):
        Image.open(io.BytesIO(pictures.broken()[name])).load()


def test_sixteen_bits_are_kept() -> None:
    grey = np.asarray(Image.open(io.BytesIO(pictures.grey16_png())))
    assert grey.dtype == np.uint16
    assert (grey.min(), grey.max()) == (0, 65535)
