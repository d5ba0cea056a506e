"""A picture blurred by chance."""

from __future__ import annotations

import math
from collections.abc import Sequence

from stoker.errors import SpecError
from stoker.ops.chance import between, check_range
from stoker.ops.geometry import Size, pair
from stoker.ops.image_op import ImageOp
from stoker.spec import spec


@spec
class GaussianBlur(ImageOp):
    """Blur with a Gaussian whose deviation is drawn evenly from ``sigma``, in pixels (torchvision's op).

    ``kernel_size``: odd, one number or (height, width); the border is mirrored without its last pixel.
    """

    field: str
    kernel_size: Size
    sigma: tuple[float, float] = (0.1, 2.0)

    def __post_init__(self) -> None:
        if not all(side > 0 and side % 2 for side in pair(self.kernel_size)):
            raise SpecError(f"GaussianBlur: kernel_size is {self.kernel_size}; expected odd numbers above 0")
        check_range("GaussianBlur", "sigma", self.sigma, above=0)

    @property
    def num_uniforms(self) -> int:
        """The deviation."""
        return 1

    def deviation(self, uniforms: Sequence[float]) -> float:
        """Return sigma for these draws."""
        return between(*self.sigma, uniforms[0])


def weights(size: int, sigma: float) -> list[float]:
    """Return a Gaussian of ``size`` taps that add up to 1."""
    half = (size - 1) / 2
    taps = [math.exp(-0.5 * ((tap - half) / sigma) ** 2) for tap in range(size)]
    return [tap / sum(taps) for tap in taps]
