"""ColorJitter against torchvision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torchvision.transforms.v2.functional as tv
from PIL import Image

from stoker import ops
from stoker.errors import SampleError, SpecError
from stoker.ops.color_jitter import Step
from support import pictures
from support.ops import image

PICTURE = pictures.pixels(5)
THEIRS = {
    "brightness": tv.adjust_brightness,
    "contrast": tv.adjust_contrast,
    "saturation": tv.adjust_saturation,
    "hue": tv.adjust_hue,
}


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_pixels_are_those_of_torchvision_on_pillow(mode: str) -> None:
    op = ops.ColorJitter("image", brightness=0.4, contrast=0.5, saturation=(0.2, 3.0), hue=0.3)
    before = Image.fromarray(PICTURE).convert(mode)
    for seed in range(10):
        draws = np.random.default_rng(seed).random(8).tolist()
        expected = before
        for step in op.steps(draws):
            expected = THEIRS[step.adjustment](expected, step.amount)
        out = image(op, np.asarray(before), draws)
        assert (out == np.asarray(expected).reshape(out.shape)).all()


def test_amounts_and_order_are_drawn() -> None:
    op = ops.ColorJitter("image", brightness=0.5, contrast=2.0, saturation=(0.5, 0.6), hue=0.1)
    steps = op.steps([0.0, 0.5, 1.0, 0.25, 0.9, 0.1, 0.5, 0.2])
    assert steps == (Step("contrast", 1.5), Step("hue", -0.05), Step("saturation", 0.6), Step("brightness", 0.5))


def test_what_is_not_asked_for_is_left_alone() -> None:
    assert ops.ColorJitter("image").steps([0.9] * 8) == ()
    assert [step.adjustment for step in ops.ColorJitter("image", hue=0.5).steps([0.9] * 8)] == ["hue"]
    assert (image(ops.ColorJitter("image"), PICTURE) == PICTURE).all()


@pytest.mark.parametrize("wrong", [{"hue": 0.6}, {"brightness": -1.0}, {"contrast": (0.5, 0.1)}, {"hue": (-0.6, 0.0)}])
def test_wrong_arguments_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=next(iter(wrong))):
        ops.ColorJitter("image", **wrong)


def test_other_kinds_of_picture_are_refused() -> None:
    with pytest.raises(SampleError, match="3 channels of float32; expected 1 or 3 channels of uint8"):
        image(ops.ColorJitter("image", hue=0.5), PICTURE.astype(np.float32))
