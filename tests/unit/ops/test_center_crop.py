"""CenterCrop against torchvision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torchvision.transforms.v2 as tv
from PIL import Image

from stoker import ops
from stoker.errors import SpecError
from support.ops import image

NOISE = np.random.default_rng(0).integers(0, 256, (41, 60, 3), np.uint8)


@pytest.mark.parametrize("size", [1, 20, 33, (40, 59), (41, 60), 50, (80, 20), (20, 81), (99, 100)])
@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_are_those_of_torchvision(size: Any, channels: int) -> None:
    picture = NOISE[..., :channels]
    as_pillow = Image.fromarray(np.ascontiguousarray(picture if channels == 3 else picture[..., 0]))
    expected = np.asarray(tv.CenterCrop(size)(as_pillow))
    out = image(ops.CenterCrop("image", size), picture)
    assert (out == expected.reshape(*expected.shape[:2], channels)).all()


def test_it_cuts_what_was_resized_and_mirrored() -> None:
    chain = [ops.Resize("image", 32), ops.RandomHorizontalFlip("image", p=1.0), ops.CenterCrop("image", 21)]
    resized = tv.CenterCrop(21)(tv.Resize(32)(Image.fromarray(NOISE)).transpose(Image.Transpose.FLIP_LEFT_RIGHT))
    assert np.abs(image(chain, NOISE).astype(int) - np.asarray(resized)).max() <= 1


def test_crops_of_crops_add_up() -> None:
    chain = [ops.RandomVerticalFlip("image", p=1.0), ops.CenterCrop("image", (31, 40)), ops.CenterCrop("image", 11)]
    expected = tv.CenterCrop(11)(tv.CenterCrop((31, 40))(Image.fromarray(NOISE[::-1].copy())))
    assert (image(chain, NOISE) == np.asarray(expected)).all()


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(SpecError, match="size"):
        ops.CenterCrop("image", -1)
