"""Resize against torchvision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torchvision.transforms.v2 as tv
from PIL import Image

from stoker import ops
from stoker.errors import SpecError
from support import pictures
from support.ops import image, resized_differences

NOISE = np.random.default_rng(0).integers(0, 256, (110, 150, 3), np.uint8)


@pytest.mark.parametrize("size, max_size", [(64, None), (200, None), ((50, 90), None), (100, 120), (110, None)])
@pytest.mark.parametrize("turned", [False, True])
def test_size_and_pixels_are_those_of_torchvision(size: Any, max_size: int | None, turned: bool) -> None:
    picture = np.ascontiguousarray(NOISE.transpose(1, 0, 2)) if turned else NOISE
    expected = np.asarray(tv.Resize(size, max_size=max_size)(Image.fromarray(picture)))
    out = image(ops.Resize("image", size, max_size=max_size), picture)
    assert out.shape == expected.shape
    assert resized_differences(out, expected).max() <= 2
    assert resized_differences(out, expected).mean() <= 0.3


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (100, 101), (10, 1000)])
@pytest.mark.parametrize("max_size", [None, 300])
def test_every_shape_gets_torchvisions_size(shape: tuple[int, int], max_size: int | None) -> None:
    theirs = tv.Resize(32, max_size=max_size)(Image.new("L", shape[::-1])).size[::-1]
    assert ops.Resize("image", 32, max_size=max_size).output_size(*shape) == theirs


def test_no_side_becomes_zero() -> None:
    assert ops.Resize("image", 32, max_size=300).output_size(10, 20_000) == (1, 300)
    assert ops.Resize("image", 32).output_size(20_000, 10) == (64_000, 32)


def test_a_long_picture_is_resized_whole() -> None:
    chain = [ops.DecodeImage("image"), ops.Resize("image", 5)]
    assert image(chain, pictures.odd()["long.jpg"]).shape == (5, 10_000, 3)


def test_the_same_size_leaves_the_pixels_alone() -> None:
    assert (image(ops.Resize("image", 110), NOISE) == NOISE).all()


def test_resizing_twice_and_mirroring_between_is_done_in_order() -> None:
    chain = [ops.Resize("image", 64), ops.RandomHorizontalFlip("image", p=1.0), ops.Resize("image", (30, 31))]
    expected = Image.fromarray(NOISE).resize((87, 64), 2).transpose(Image.Transpose.FLIP_LEFT_RIGHT).resize((31, 30), 2)
    assert resized_differences(image(chain, NOISE), np.asarray(expected)).max() <= 2


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_channels_are_resized_alike(channels: int) -> None:
    picture = np.repeat(NOISE[..., :1], channels, axis=2)
    out = image(ops.Resize("image", 40), picture)
    assert out.shape == (40, 54, channels)
    assert (out == out[..., :1]).all()


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(SpecError, match="max_size"):
        ops.Resize("image", (3, 4), max_size=9)
    with pytest.raises(SpecError, match="max_size"):
        ops.Resize("image", 10, max_size=10)
    with pytest.raises(SpecError, match="size"):
        ops.Resize("image", (0, 4))
