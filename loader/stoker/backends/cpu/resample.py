"""Pixels at another height and width.

The routes, fastest first for each quality, are in this folder's parent's README.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.backends.cpu.packages import need
from stoker.backends.cpu.scratch import Scratch
from stoker.ops.sampling import Interpolation, Sampling

_scratch = Scratch()


Resize = Callable[[NDArray[Any]], None]
"""Resizes pixels into the place it was prepared for."""


def resizer(shape: tuple[int, int, int], out: NDArray[Any], sampling: Sampling) -> Resize:
    """Prepare to fill ``out`` (contiguous, height × width × channels) with resized pixels of its dtype and ``shape``.

    To be called in the same thread.
    """
    if shape == out.shape:
        return functools.partial(np.copyto, out)
    if sampling.interpolation == "nearest":
        return lambda pixels: _nearest(pixels, out)
    if not sampling.antialias:
        return _plain(out, sampling)
    if out.dtype == np.uint8 and (torch := torch_here()) is not None:
        return torch.resizer(shape, out, sampling.interpolation)
    return lambda pixels: _by_pillow(pixels, out, sampling)


class Torch:
    """Torch's anti-aliasing resizes, on bytes."""

    def __init__(self) -> None:
        import torch

        # What torch.nn.functional.interpolate calls, which has no ``out``; through torch.ops a call costs 3 µs more,
        # with the GIL held.
        functions: Any = torch._C._nn
        self._resizers = {"bilinear": functions._upsample_bilinear2d_aa, "bicubic": functions._upsample_bicubic2d_aa}
        self._from_numpy = torch.from_numpy

    def resizer(self, shape: tuple[int, int, int], out: NDArray[Any], interpolation: Interpolation) -> Resize:
        """Prepare to resize as Pillow does, up to rounding.

        What comes in is made contiguous first: torch would do so in threads of its own, new ones for each of ours.
        """
        dense = _scratch.take(math.prod(shape)).reshape(shape)
        source, target, size = self._planes(dense), self._planes(out), out.shape[:2]
        resample = self._resizers[interpolation]

        def resize(pixels: NDArray[Any]) -> None:
            np.copyto(dense, pixels)
            resample(source, size, False, None, None, out=target)

        return resize

    def _planes(self, pixels: NDArray[Any]) -> Any:
        """Return a tensor of shape (1, channels, height, width) on the same memory.

        NumPy changes the axes, since each call of a tensor's method gives the GIL away and waits for it.
        """
        return self._from_numpy(pixels.reshape(1, *pixels.shape).transpose(0, 3, 1, 2))


@functools.cache
def torch_here() -> Torch | None:
    """Return torch's resizes, or None where torch is not installed."""
    return Torch() if importlib.util.find_spec("torch") is not None else None


def _by_pillow(pixels: NDArray[Any], out: NDArray[Any], sampling: Sampling) -> None:
    """Resize channel by channel: Pillow knows wide numbers as single channels only, and would weigh by alpha."""
    module = need("PIL.Image")
    method = getattr(module.Resampling, sampling.interpolation.upper())
    width_height = out.shape[1::-1]
    for channel in range(out.shape[2]):
        plane = pixels[..., channel]
        narrow = np.ascontiguousarray(plane if plane.dtype == np.uint8 else plane.astype(np.float32))
        resized = np.asarray(module.fromarray(narrow).resize(width_height, method))
        out[..., channel] = _rounded(resized, out.dtype)


def _rounded(resized: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    if dtype == resized.dtype or not np.issubdtype(dtype, np.integer):
        return resized
    rounded: NDArray[Any] = np.clip(np.rint(resized), 0, np.iinfo(dtype).max).astype(dtype)
    return rounded


def _nearest(pixels: NDArray[Any], out: NDArray[Any]) -> None:
    """Take the pixel at each new one's centre, as Pillow does."""
    rows, columns = (
        ((np.arange(new) + 0.5) * (old / new)).astype(np.intp)
        for new, old in zip(out.shape[:2], pixels.shape[:2], strict=True)
    )
    np.copyto(out, pixels[rows[:, None], columns])


def _plain(out: NDArray[Any], sampling: Sampling) -> Resize:
    cv2 = need("cv2")
    method = cv2.INTER_LINEAR if sampling.interpolation == "bilinear" else cv2.INTER_CUBIC
    resize, size = cv2.resize, out.shape[1::-1]

    def plain(pixels: NDArray[Any]) -> None:
        resize(pixels, size, dst=out, interpolation=method)

    return plain
