"""A rectangle of a picture wiped out by chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from stoker.ops.chance import between, check_probability, check_range, log_between, whole_below
from stoker.ops.geometry import Window
from stoker.ops.image_op import ImageOp
from stoker.spec import spec

_ATTEMPTS = 10


@spec
class RandomErasing(ImageOp):
    """With probability ``p`` fill a random rectangle (torchvision's op).

    ``scale`` bounds its area as a fraction of the picture's, ``ratio`` its height / width. ``value`` is what fills it,
    one number or one per channel, in the picture's own units; ``"random"`` draws each value from a normal
    distribution, on the scale where white is 1 for whole-number pixels (clipped), as it is for float32 ones. After
    ten rectangles that do not fit the picture stays whole.
    """

    field: str
    p: float = 0.5
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    value: float | tuple[float, ...] | Literal["random"] = 0.0

    def __post_init__(self) -> None:
        check_probability("RandomErasing", self.p)
        check_range("RandomErasing", "scale", self.scale, above=0)
        check_range("RandomErasing", "ratio", self.ratio, above=0)

    @property
    def num_uniforms(self) -> int:
        """Whether, area and ratio of each attempt, top and left, the key of the noise."""
        return 1 + 2 * _ATTEMPTS + 3

    def window(self, height: int, width: int, uniforms: Sequence[float]) -> Window | None:
        """Return the rectangle for these draws, or None to leave the picture whole."""
        if uniforms[0] >= self.p:
            return None
        for attempt in range(_ATTEMPTS):
            area = height * width * between(*self.scale, uniforms[1 + 2 * attempt])
            ratio = log_between(*self.ratio, uniforms[2 + 2 * attempt])
            wiped_height, wiped_width = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < wiped_height < height and 0 < wiped_width < width:
                top = whole_below(height - wiped_height + 1, uniforms[-3])
                left = whole_below(width - wiped_width + 1, uniforms[-2])
                return Window(top, left, wiped_height, wiped_width)
        return None

    def noise_key(self, uniforms: Sequence[float]) -> int:
        """Return the key of the generator that fills the rectangle when ``value`` is ``"random"``."""
        return int(uniforms[-1] * 2**53)
