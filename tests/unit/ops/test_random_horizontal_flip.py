"""RandomHorizontalFlip against torchvision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms.v2.functional as tv

from stoker import ops
from stoker.errors import SpecError
from support.ops import image

NOISE = np.random.default_rng(0).integers(0, 256, (41, 60, 4), np.uint8)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_pixels_are_those_of_torchvision(channels: int, dtype: Any) -> None:
    picture = np.ascontiguousarray(NOISE[..., :channels]).astype(dtype)
    expected = tv.horizontal_flip(torch.from_numpy(picture).permute(2, 0, 1)).permute(1, 2, 0).numpy()
    assert (image(ops.RandomHorizontalFlip("image"), picture, [0.49]) == expected).all()
    assert (image(ops.RandomHorizontalFlip("image"), picture, [0.5]) == picture).all()


def test_twice_is_not_at_all() -> None:
    op = ops.RandomHorizontalFlip("image", p=1.0)
    assert (image([op, op], NOISE) == NOISE).all()


def test_the_picture_that_came_in_is_left_alone() -> None:
    before = NOISE.copy()
    image(ops.RandomHorizontalFlip("image", p=1.0), before)
    assert (before == NOISE).all()


def test_p_is_a_probability() -> None:
    assert not ops.RandomHorizontalFlip("image", p=0.0).flips([0.0])
    assert ops.RandomHorizontalFlip("image", p=1.0).flips([0.999])
    with pytest.raises(SpecError, match=r"p is 1\.5"):
        ops.RandomHorizontalFlip("image", p=1.5)
