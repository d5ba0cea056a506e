"""TrivialAugment against torchvision's TrivialAugmentWide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torchvision.transforms.v2 as tv
from PIL import Image

from stoker import ops
from stoker.errors import SpecError
from stoker.ops.augmentations import AUGMENTATIONS
from support import pictures
from support.ops import image

PICTURE = pictures.pixels(5, 61, 47)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_each_change_gives_torchvisions_pixels(name: Any) -> None:
    op, theirs = ops.TrivialAugment("image"), tv.TrivialAugmentWide()
    levels, is_signed = theirs._AUGMENTATION_SPACE[name]
    bins = levels(31, 47, 61)
    for level in range(31):
        draws = [(AUGMENTATIONS.index(name) + 0.5) / 14, (level + 0.5) / 31, 0.2]
        ((chosen, amount),) = op.changes(47, 61, draws)
        assert chosen == name
        expected = 0.0 if bins is None else float(bins[level]) * (-1 if is_signed else 1)
        assert amount == pytest.approx(expected, abs=1e-4)
        done = theirs._apply_image_or_video_transform(
            Image.fromarray(PICTURE), name, amount, interpolation=theirs.interpolation, fill={Image.Image: None}
        )
        assert (image(op, PICTURE, draws) == np.asarray(done)).all()


def test_the_same_changes_as_torchvision_can_be_drawn() -> None:
    assert list(AUGMENTATIONS) == list(tv.TrivialAugmentWide._AUGMENTATION_SPACE)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(SpecError, match="num_magnitude_bins"):
        ops.TrivialAugment("image", num_magnitude_bins=1)
