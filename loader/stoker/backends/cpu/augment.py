"""Kernels of RandAugment and TrivialAugment, with Pillow's pixels."""

from __future__ import annotations

import math
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from stoker.backends.cpu.packages import need
from stoker.backends.cpu.pillow_image import from_pillow, to_pillow
from stoker.backends.program import Kernel
from stoker.backends.registry import implements
from stoker.ops.augmentations import Change
from stoker.ops.rand_augment import RandAugment
from stoker.ops.trivial_augment import TrivialAugment
from stoker.sample import Sample

Affine = tuple[float, float, float, float, float, float]
"""(a, b, c, d, e, f): the new pixel (x, y) shows the old one at (a x + b y + c, d x + e y + f)."""


@implements(RandAugment)
@implements(TrivialAugment)
def augment(op: RandAugment | TrivialAugment) -> Kernel:
    """Make the pixels and change them."""
    resampling = need("PIL.Image").Resampling[op.interpolation.upper()]
    need("PIL.ImageEnhance")
    need("PIL.ImageOps")

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:
        image = to_pillow(sample, op.field)
        for change in op.changes(image.height, image.width, uniforms.tolist()):
            image = changed(image, change, resampling, op.fill)
        sample.fields[op.field] = from_pillow(image)

    return kernel


def changed(image: Any, change: Change, resampling: Any, fill: int | tuple[int, ...]) -> Any:
    """Return the image after one change."""
    match change.augmentation:
        case "Identity":
            return image
        case "ShearX" | "ShearY" | "TranslateX" | "TranslateY":
            affine = need("PIL.Image").Transform.AFFINE
            return image.transform(image.size, affine, _matrix(change), resampling, fillcolor=_for(image, fill))
        case "Rotate":
            return image.rotate(change.magnitude, resampling, fillcolor=_for(image, fill))
        case "Brightness" | "Color" | "Contrast" | "Sharpness":
            return getattr(need("PIL.ImageEnhance"), change.augmentation)(image).enhance(1 + change.magnitude)
        case "Posterize" | "Solarize" | "AutoContrast" | "Equalize":
            return _toned(image, change)
    assert_never(change.augmentation)


def _toned(image: Any, change: Change) -> Any:
    tones = need("PIL.ImageOps")
    match change.augmentation:
        case "Posterize":
            return tones.posterize(image, int(change.magnitude))
        case "Solarize":
            return tones.solarize(image, 255 * change.magnitude)
        case "AutoContrast":
            return tones.autocontrast(image)
    return tones.equalize(image)


def _for(image: Any, fill: int | tuple[int, ...]) -> int | tuple[int, ...]:
    return (fill,) * 3 if isinstance(fill, int) and image.mode == "RGB" else fill


def _matrix(change: Change) -> Affine:
    angle = math.radians(math.degrees(math.atan(change.magnitude)))  # torchvision's way, to the last bit
    shift = -float(int(change.magnitude))
    match change.augmentation:
        case "ShearX":
            return 1.0, math.tan(angle), 0.0, 0.0, 1.0, 0.0
        case "ShearY":
            return 1.0, 0.0, 0.0, math.sin(angle) / math.cos(angle), 1.0, 0.0
        case "TranslateX":
            return 1.0, 0.0, shift, 0.0, 1.0, 0.0
    return 1.0, 0.0, 0.0, 0.0, 1.0, shift
