"""Kernel of RandomErasing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.backends.cpu.picture import ArraySource, Picture, picture
from stoker.backends.program import Kernel
from stoker.backends.registry import implements
from stoker.ops.random_erasing import RandomErasing
from stoker.sample import Sample


@implements(RandomErasing)
def random_erasing(op: RandomErasing) -> Kernel:
    """Make the pixels and fill a rectangle."""

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:
        draws = uniforms.tolist()
        image = picture(sample, op.field)
        window = op.window(*image.size, draws)
        if window is None:
            return
        erased = image.array()
        inside = erased[window.top : window.bottom, window.left : window.right]
        inside[...] = _noise(inside, op.noise_key(draws)) if op.value == "random" else op.value
        sample.fields[op.field] = Picture(ArraySource(erased))

    return kernel


def _noise(like: NDArray[Any], key: int) -> NDArray[Any]:
    noise = np.random.Generator(np.random.Philox(key=key)).standard_normal(like.shape, np.float32)
    if not np.issubdtype(like.dtype, np.integer):
        return noise
    white = np.iinfo(like.dtype).max
    return np.clip(np.rint(noise * white), 0, white)
