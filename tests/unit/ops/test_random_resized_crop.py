"""RandomResizedCrop against torchvision."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms.v2.functional as tv
from PIL import Image
from torchvision.transforms import RandomResizedCrop

from stoker import ops
from stoker.errors import SpecError
from stoker.ops.geometry import Window
from support import pictures
from support.ops import image, resized_differences

SMOOTH = pictures.pixels(3, 150, 110)
NOISE = np.random.default_rng(0).integers(0, 256, (110, 150, 3), np.uint8)


def draws(seed: int) -> list[float]:
    return [float(draw) for draw in np.random.default_rng(seed).random(22)]


@pytest.mark.parametrize("picture", [SMOOTH, NOISE], ids=["smooth", "noise"])
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(32, 48), (224, 224)])
def test_pixels_are_those_of_torchvision_on_pillow(
    picture: np.ndarray, interpolation: Any, size: tuple[int, int], backend: str
) -> None:
    """Pillow rounds after whichever pass it finds cheaper to do first; on noise, bicubic overshoots in between.

    DALI neither rounds nor cuts off there.
    """
    op = ops.RandomResizedCrop("image", size, interpolation=interpolation)
    for seed in range(5):
        window = op.window(picture.shape[0], picture.shape[1], draws(seed))
        mode = tv.InterpolationMode(interpolation)
        expected = tv.resized_crop(Image.fromarray(picture), *window, list(size), interpolation=mode)
        difference = resized_differences(image(op, picture, draws(seed)), np.asarray(expected))
        assert (
            difference.max() <= {"nearest": 0, "bilinear": 2, "bicubic": 16 if backend == "cpu" else 24}[interpolation]
        )
        assert difference.mean() <= 0.4


@pytest.mark.parametrize("interpolation, picture", [("bilinear", NOISE), ("bicubic", SMOOTH)])
def test_without_antialias_pixels_are_those_of_torch(interpolation: Any, picture: np.ndarray) -> None:
    """Bicubic on noise would differ more: torch rounds and clips between its two passes."""
    op = ops.RandomResizedCrop("image", 40, interpolation=interpolation, antialias=False)
    for seed in range(5):
        window = op.window(picture.shape[0], picture.shape[1], draws(seed))
        tensor = torch.from_numpy(picture).permute(2, 0, 1)
        mode = tv.InterpolationMode(interpolation)
        expected = tv.resized_crop(tensor, *window, [40, 40], interpolation=mode, antialias=False)
        difference = np.abs(image(op, picture, draws(seed)).astype(int) - expected.permute(1, 2, 0).numpy())
        assert difference.max() <= 2
        assert difference.mean() <= 0.5


def test_windows_follow_torchvisions_law() -> None:
    op = ops.RandomResizedCrop("image", 8)
    ours = np.array([op.window(375, 500, draws(seed)) for seed in range(4000)])
    blank = torch.zeros(3, 375, 500)
    torch.manual_seed(0)
    theirs = np.array([RandomResizedCrop.get_params(blank, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(4000)])
    for column in range(4):
        for quantile in (0.05, 0.25, 0.5, 0.75, 0.95):
            a, b = (np.quantile(values[:, column], quantile) for values in (ours, theirs))
            assert abs(a - b) <= 15


@pytest.mark.parametrize("size", [(1, 1), (10, 20_000), (20_000, 10), (3, 2)])
def test_every_shape_has_a_window(size: Any) -> None:
    op = ops.RandomResizedCrop("image", 7)
    for seed in range(50):
        window = op.window(size[0], size[1], draws(seed))
        assert 0 <= window.top < window.bottom <= size[0]
        assert 0 <= window.left < window.right <= size[1]


def test_the_last_resort_is_the_centre_with_an_allowed_ratio() -> None:
    op = ops.RandomResizedCrop("image", 7, scale=(1.0, 1.0))
    assert op.window(10, 20_000, [0.5] * 22) == Window(0, 9993, 10, 13)
    assert op.window(20_000, 9, [0.5] * 22) == Window(9994, 0, 12, 9)


@pytest.mark.parametrize("shape", [(1, 1), (10, 2000)])
def test_extreme_pictures_come_out_whole(shape: tuple[int, int]) -> None:
    file = pictures.jpeg(0, shape[1], shape[0])
    chain = [ops.DecodeImage("image"), ops.RandomResizedCrop("image", 16)]
    out = image(chain, file)
    assert out.shape == (16, 16, 3)
    if shape == (1, 1):
        assert (out == np.asarray(Image.open(io.BytesIO(file)))).all()


@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_wide_pixels_keep_their_dtype_and_range(dtype: Any) -> None:
    picture = (NOISE.astype(np.float64) * 257).astype(dtype)
    out = image(ops.RandomResizedCrop("image", 30), picture)
    narrow = image(ops.RandomResizedCrop("image", 30), NOISE)
    assert out.dtype == dtype
    assert np.abs(out.astype(np.float64) / 257 - narrow).max() <= 1.01


def test_wrong_arguments_are_named() -> None:
    for wrong in ({"size": 0}, {"scale": (0.5, 0.1)}, {"ratio": (0.0, 1.0)}):
        arguments: dict[str, Any] = {"size": 8, **wrong}
        with pytest.raises(SpecError, match=next(iter(wrong))):
            ops.RandomResizedCrop("image", **arguments)
