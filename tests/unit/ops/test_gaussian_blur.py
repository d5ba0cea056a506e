"""GaussianBlur against torchvision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms.v2.functional as tv

from stoker import ops
from stoker.errors import SpecError
from support.ops import image

NOISE = np.random.default_rng(0).integers(0, 256, (41, 60, 3), np.uint8)


@pytest.mark.parametrize("kernel_size", [1, 3, (5, 9), 23])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype, tolerance", [(np.uint8, 1), (np.float32, 1e-3)])
def test_pixels_are_those_of_torchvision(kernel_size: Any, channels: int, dtype: Any, tolerance: float) -> None:
    op = ops.GaussianBlur("image", kernel_size)
    picture = np.ascontiguousarray(NOISE[..., :channels]).astype(dtype)
    for draw in (0.0, 0.3, 0.999):
        sigma = op.deviation([draw])
        width_height = [kernel_size] * 2 if isinstance(kernel_size, int) else list(kernel_size[::-1])
        expected = tv.gaussian_blur(torch.from_numpy(picture).permute(2, 0, 1), width_height, [sigma, sigma])
        difference = np.abs(image(op, picture, [draw]).astype(float) - expected.permute(1, 2, 0).numpy())
        assert difference.max() <= tolerance
        assert difference.mean() <= 0.01


def test_tiny_and_wide_pictures_are_blurred() -> None:
    assert (image(ops.GaussianBlur("image", 5), NOISE[:1, :1]) == NOISE[:1, :1]).all()
    assert image(ops.GaussianBlur("image", 5), NOISE.astype(np.uint16) * 257).dtype == np.uint16


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(SpecError, match="kernel_size"):
        ops.GaussianBlur("image", 4)
    with pytest.raises(SpecError, match="sigma"):
        ops.GaussianBlur("image", 3, sigma=(0.0, 1.0))
