"""Kernels that choose, move or resize parts of a picture."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.backends.cpu import resample
from stoker.backends.cpu.packages import need
from stoker.backends.cpu.picture import ArraySource, Picture, picture
from stoker.backends.program import Kernel
from stoker.backends.registry import implements
from stoker.ops.center_crop import CenterCrop
from stoker.ops.geometry import pair
from stoker.ops.pad import Pad, PaddingMode
from stoker.ops.random_horizontal_flip import RandomHorizontalFlip
from stoker.ops.random_resized_crop import RandomResizedCrop
from stoker.ops.random_vertical_flip import RandomVerticalFlip
from stoker.ops.resize import Resize
from stoker.ops.sampling import Sampling
from stoker.sample import Sample

_BORDERS = {"constant": 0, "edge": 1, "symmetric": 2, "reflect": 4}
"""OpenCV's numbers for padding modes."""


def _sampling(op: RandomResizedCrop | Resize) -> Sampling:
    """Read how the op resamples, and load what does it before the first sample."""
    need("cv2")
    sampling = Sampling(op.interpolation, op.antialias)
    if sampling.antialias:
        resample.torch_here()
    return sampling


@implements(RandomResizedCrop)
def random_resized_crop(op: RandomResizedCrop) -> Kernel:
    """Crop and resize later, when the pixels are made."""
    sampling, size, field = _sampling(op), pair(op.size), op.field

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:
        image = picture(sample, field)
        window = op.window(*image.size, uniforms.tolist())
        sample.fields[field] = image.crop(window).resize(size, sampling)

    return kernel


@implements(RandomHorizontalFlip)
def random_horizontal_flip(op: RandomHorizontalFlip) -> Kernel:
    """Mirror later, when the pixels are made."""

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:
        image = picture(sample, op.field)
        if op.flips(uniforms.tolist()):
            sample.fields[op.field] = image.flip(horizontal=True)

    return kernel


@implements(RandomVerticalFlip)
def random_vertical_flip(op: RandomVerticalFlip) -> Kernel:
    """Mirror later, when the pixels are made."""

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:
        image = picture(sample, op.field)
        if op.flips(uniforms.tolist()):
            sample.fields[op.field] = image.flip(vertical=True)

    return kernel


@implements(Resize)
def resize(op: Resize) -> Kernel:
    """Resize later, when the pixels are made."""
    sampling = _sampling(op)

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:  # noqa: ARG001  # draws nothing
        image = picture(sample, op.field)
        sample.fields[op.field] = image.resize(op.output_size(*image.size), sampling)

    return kernel


@implements(CenterCrop)
def center_crop(op: CenterCrop) -> Kernel:
    """Crop later, when the pixels are made; a picture that is too small is made and padded now."""

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:  # noqa: ARG001  # draws nothing
        image = picture(sample, op.field)
        sides = op.padding(*image.size)
        if any(sides):
            image = _padded(image, sides, 0, "constant")
        sample.fields[op.field] = image.crop(op.window(*image.size))

    return kernel


@implements(Pad)
def pad(op: Pad) -> Kernel:
    """Make the pixels and pad them."""

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:  # noqa: ARG001  # draws nothing
        sample.fields[op.field] = _padded(picture(sample, op.field), op.sides, op.fill, op.padding_mode)

    return kernel


def _padded(image: Picture, sides: tuple[int, int, int, int], fill: Any, mode: PaddingMode) -> Picture:
    left, top, right, bottom = sides
    value = fill if isinstance(fill, tuple) else (fill,) * 4
    inner = image.array()
    outer = need("cv2").copyMakeBorder(inner, top, bottom, left, right, _BORDERS[mode], value=value)
    return Picture(ArraySource(outer.reshape(*outer.shape[:2], inner.shape[2])))
