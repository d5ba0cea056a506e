"""RandAugment against torchvision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torchvision.transforms.v2 as tv
from PIL import Image

from stoker import ops
from stoker.errors import SpecError
from stoker.ops.augmentations import AUGMENTATIONS, Change
from support import pictures
from support.ops import image

PICTURE = pictures.pixels(5, 61, 47)
HEIGHT, WIDTH = PICTURE.shape[:2]


def which(name: Any) -> float:
    return (AUGMENTATIONS.index(name) + 0.5) / len(AUGMENTATIONS)


@pytest.mark.parametrize("name", AUGMENTATIONS)
@pytest.mark.parametrize("is_negative", [False, True])
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_each_change_gives_torchvisions_pixels(name: Any, is_negative: bool, interpolation: Any) -> None:
    for magnitude in range(0, 31, 6):
        op = ops.RandAugment("image", num_ops=1, magnitude=magnitude, interpolation=interpolation, fill=9)
        draws = [which(name), 0.1 if is_negative else 0.9]
        ((_, amount),) = op.changes(HEIGHT, WIDTH, draws)
        theirs = tv.RandAugment(interpolation=tv.InterpolationMode(interpolation), fill=9)
        levels, is_signed = theirs._AUGMENTATION_SPACE[name]
        bins = levels(31, HEIGHT, WIDTH)
        expected = 0.0 if bins is None else float(bins[magnitude]) * (-1 if is_signed and is_negative else 1)
        assert amount == pytest.approx(expected, abs=1e-4)
        filled = {Image.Image: 9}
        done = theirs._apply_image_or_video_transform(
            Image.fromarray(PICTURE), name, amount, interpolation=theirs.interpolation, fill=filled
        )
        assert (image(op, PICTURE, draws) == np.asarray(done)).all()


def test_the_same_changes_as_torchvision_can_be_drawn() -> None:
    assert list(AUGMENTATIONS) == list(tv.RandAugment._AUGMENTATION_SPACE)


def test_translations_follow_the_picture() -> None:
    op = ops.RandAugment("image", num_ops=2, magnitude=30)
    draws = [which("TranslateX"), 0.9, which("TranslateY"), 0.1]
    assert op.changes(331, 662, draws) == (Change("TranslateX", 300.0), Change("TranslateY", -150.0))


@pytest.mark.parametrize("fill", [0, (1, 2, 3)])
def test_what_comes_in_from_outside_is_filled(fill: Any) -> None:
    op = ops.RandAugment("image", num_ops=1, magnitude=30, fill=fill)
    out = image(op, PICTURE, [which("TranslateX"), 0.9])
    assert (out[:, 0] == fill).all()


def test_grey_pictures_are_changed_too() -> None:
    for name in AUGMENTATIONS:
        assert image(ops.RandAugment("image", num_ops=1), PICTURE[..., :1], [which(name), 0.3]).shape == (47, 61, 1)


@pytest.mark.parametrize("wrong", [{"magnitude": 31}, {"num_ops": -1}, {"num_magnitude_bins": 1}])
def test_wrong_arguments_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=next(iter(wrong))):
        ops.RandAugment("image", **wrong)
