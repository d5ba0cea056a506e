"""Pad against torchvision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms.v2 as tv

from stoker import ops
from stoker.errors import SpecError
from support.ops import image

NOISE = np.random.default_rng(0).integers(0, 256, (41, 60, 3), np.uint8)


@pytest.mark.parametrize("padding", [0, 3, (2, 5), (1, 2, 3, 4)])
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_pixels_are_those_of_torchvision(padding: Any, mode: Any, dtype: Any) -> None:
    picture = NOISE.astype(dtype)
    arguments = padding if isinstance(padding, int) else list(padding)
    expected = tv.Pad(arguments, fill=7, padding_mode=mode)(torch.from_numpy(picture).permute(2, 0, 1))
    out = image(ops.Pad("image", padding, fill=7, padding_mode=mode), picture)
    assert out.dtype == dtype
    assert (out == expected.permute(1, 2, 0).numpy()).all()


def test_each_channel_can_have_its_own_fill() -> None:
    out = image(ops.Pad("image", 1, fill=(1, 2, 3)), NOISE)
    assert out[0, 0].tolist() == [1, 2, 3]
    assert image(ops.Pad("image", 1, fill=9), NOISE[..., :1]).shape == (43, 62, 1)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(SpecError, match="padding"):
        ops.Pad("image", (1, -1))
