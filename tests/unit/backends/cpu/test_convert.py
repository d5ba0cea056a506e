"""Colours and depths, against Pillow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from stoker.backends.cpu.convert import Wanted, convert

NOISE = np.random.default_rng(0).integers(0, 256, (9, 11, 4), np.uint8)
CHANNELS = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}


@pytest.mark.parametrize("model", CHANNELS)
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_every_pair_is_converted_as_pillow_does(model: Any, mode: Any) -> None:
    pixels = NOISE[..., : CHANNELS[model]]
    image = Image.frombytes(model, (11, 9), pixels.tobytes())
    if model == "CMYK":
        image = image.convert("RGB")
    expected = np.asarray(image.convert(mode)).reshape(9, 11, -1)
    assert (convert(pixels, model, Wanted(mode, "uint8", None)) == expected).all()


@pytest.mark.parametrize("model", CHANNELS)
def test_unchanged_changes_nothing(model: Any) -> None:
    pixels = NOISE[..., : CHANNELS[model]]
    assert convert(pixels, model, Wanted("unchanged", "uint8", None)) is pixels


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
@pytest.mark.parametrize("model", ["L", "LA", "RGB", "RGBA"])
def test_sixteen_bits_give_the_same_colours(model: Any, mode: Any) -> None:
    narrow = NOISE[..., : CHANNELS[model]]
    wide = narrow.astype(np.uint16) * np.uint16(257)
    for background in (None, (10, 200, 30)):
        from_wide = convert(wide, model, Wanted(mode, "uint8", background)).astype(int)
        assert np.abs(from_wide - convert(narrow, model, Wanted(mode, "uint8", background))).max() <= 1


@pytest.mark.parametrize("alpha, expected", [(0, (255, 128, 0)), (255, (10, 20, 30)), (51, (206, 106, 6))])
def test_alpha_weighs_picture_against_background(alpha: int, expected: tuple[int, ...]) -> None:
    pixels = np.array([[[10, 20, 30, alpha]]], np.uint8)
    assert convert(pixels, "RGBA", Wanted("RGB", "uint8", (255, 128, 0))).ravel().tolist() == list(expected)


def test_depths_are_scaled_over_the_full_range() -> None:
    ramp = np.arange(65536, dtype=np.uint16).reshape(256, 256, 1)
    narrow = convert(ramp, "L", Wanted("L", "uint8", None))
    assert (narrow == np.rint(ramp / 257)).all()
    back = convert(narrow, "L", Wanted("L", "uint16", None))
    assert np.abs(back.astype(int) - ramp).max() <= 129
