"""The chains of the presets against torchvision's transforms on Pillow images."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torchvision.transforms.v2 as tv
from numpy.typing import NDArray
from PIL import Image

from stoker import ops
from support import pictures
from support.ops import image

SIZES = [(500, 375), (333, 500), (64, 48), (1200, 900)]


def photograph(seed: int, width: int, height: int) -> bytes:
    """Smooth shapes, edges and noise."""
    pixels = pictures.pixels(seed, width, height).astype(int)
    rng = np.random.default_rng(seed)
    for _ in range(6):
        top, left = int(rng.integers(height // 2)), int(rng.integers(width // 2))
        pixels[top : top + height // 3, left : left + width // 4] = rng.integers(0, 256, 3)
    noisy = np.clip(pixels + rng.normal(0, 6, pixels.shape), 0, 255).astype(np.uint8)
    return pictures.encode(noisy, "JPEG", quality=90)


def difference(ours: NDArray[np.uint8], theirs: Image.Image) -> float:
    return float(np.abs(ours.astype(int) - np.asarray(theirs)).mean())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("antialias, tolerance", [(True, 0.3), (False, 8.0)], ids=["compat", "fast"])
def test_training_pictures(size: tuple[int, int], antialias: bool, tolerance: float) -> None:
    crop = ops.RandomResizedCrop("image", 224, antialias=antialias)
    chain = [ops.DecodeImage("image"), crop, ops.RandomHorizontalFlip("image")]
    found = []
    for seed in range(6):
        file = photograph(seed, *size)
        draws = np.random.default_rng(seed).random(23).tolist()
        window = crop.window(size[1], size[0], draws[:22])
        pillow = Image.open(io.BytesIO(file)).convert("RGB")
        theirs = tv.functional.resized_crop(pillow, *window, size=[224, 224])
        if draws[22] < 0.5:
            theirs = tv.functional.horizontal_flip(theirs)
        found.append(difference(image(chain, file, draws), theirs))
    assert max(found) <= tolerance


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("antialias, tolerance", [(True, 0.3), (False, 8.0)], ids=["compat", "fast"])
def test_evaluation_pictures(size: tuple[int, int], antialias: bool, tolerance: float) -> None:
    resize = ops.Resize("image", 256, antialias=antialias)
    chain = [ops.DecodeImage("image"), resize, ops.CenterCrop("image", 224)]
    file = photograph(1, *size)
    theirs = tv.Compose([tv.Resize(256), tv.CenterCrop(224)])(Image.open(io.BytesIO(file)).convert("RGB"))
    assert difference(image(chain, file), theirs) <= tolerance
