"""Kernel of GaussianBlur."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.backends.cpu.packages import need
from stoker.backends.cpu.picture import ArraySource, Picture, pixels
from stoker.backends.program import Kernel
from stoker.backends.registry import implements
from stoker.ops.gaussian_blur import GaussianBlur, weights
from stoker.ops.geometry import pair
from stoker.sample import Sample


@implements(GaussianBlur)
def gaussian_blur(op: GaussianBlur) -> Kernel:
    """Make the pixels and blur them, in float32, whole numbers rounded at the end."""
    cv2 = need("cv2")
    height, width = pair(op.kernel_size)

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:
        sigma = op.deviation(uniforms.tolist())
        found = pixels(sample, op.field)
        across, down = (np.array(weights(size, sigma), np.float32) for size in (width, height))
        blurred = cv2.sepFilter2D(found, cv2.CV_32F, across, down, borderType=cv2.BORDER_REFLECT_101)
        sample.fields[op.field] = Picture(ArraySource(_as_before(blurred.reshape(found.shape), found.dtype)))

    return kernel


def _as_before(blurred: NDArray[np.float32], dtype: np.dtype[Any]) -> NDArray[Any]:
    if not np.issubdtype(dtype, np.integer):
        return blurred
    return np.clip(np.rint(blurred), 0, np.iinfo(dtype).max).astype(dtype)
