"""Normalize against torchvision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms.v2.functional as tv

from stoker import ops
from stoker.errors import SampleError, SpecError
from support.ops import image

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NOISE = np.random.default_rng(0).integers(0, 256, (41, 60, 3), np.uint8)


@pytest.mark.parametrize("dtype, tolerance", [(np.uint8, 0), (np.uint16, 1e-6), (np.float32, 1e-4)])
def test_numbers_are_those_of_torchvision(dtype: Any, tolerance: float, backend: str) -> None:
    picture = NOISE.astype(dtype) * dtype(257 if dtype == np.uint16 else 1)
    tensor = torch.from_numpy(picture).permute(2, 0, 1)
    expected = tv.normalize(tv.to_dtype(tensor, torch.float32, scale=True), list(MEAN), list(STD))
    out = image(ops.Normalize("image", mean=MEAN, std=STD), picture)
    assert out.dtype == np.float32
    values = expected.permute(1, 2, 0).numpy()
    rounding = 0 if backend == "cpu" else 4 * np.spacing(np.abs(values).max())  # DALI multiplies before it subtracts
    assert np.abs(out - values).max() <= tolerance + rounding


def test_one_number_serves_every_channel() -> None:
    out = image(ops.Normalize("image", mean=(0.5,), std=(0.5,)), NOISE)
    assert np.abs(out - (NOISE / 127.5 - 1)).max() < 1e-6
    assert image(ops.Normalize("image", mean=(0.5,), std=(0.5,)), NOISE[..., :1]).shape == (41, 60, 1)


def test_pictures_can_be_changed_afterwards() -> None:
    chain = [ops.Normalize("image", mean=MEAN, std=STD), ops.RandomErasing("image", p=1.0), ops.CenterCrop("image", 9)]
    assert image(chain, NOISE).shape == (9, 9, 3)


def test_wrong_numbers_of_channels_are_refused() -> None:
    with pytest.raises(SpecError, match="2 means and 3 stds"):
        ops.Normalize("image", mean=(0.1, 0.2), std=STD)
    with pytest.raises(SpecError, match="std"):
        ops.Normalize("image", mean=(0.1,), std=(0.0,))
    with pytest.raises(SampleError, match="3 means for a picture of 1 channels"):
        image(ops.Normalize("image", mean=MEAN, std=STD), NOISE[..., :1])
