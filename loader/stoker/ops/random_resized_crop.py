"""A random window of a picture, resized."""

from __future__ import annotations

import math
from collections.abc import Sequence

from stoker.ops.chance import check_range, whole_below
from stoker.ops.geometry import Size, Window, check_size
from stoker.ops.image_op import ImageOp
from stoker.ops.sampling import Interpolation
from stoker.spec import spec

_ATTEMPTS = 10


@spec
class RandomResizedCrop(ImageOp):
    """Crop a window of random area and aspect ratio, then resize it (torchvision's op of this name).

    ``scale`` bounds the area as a fraction of the picture's, ``ratio`` its width / height, which is drawn evenly on a
    logarithmic scale. After ten windows that do not fit, the largest centred one whose ratio is allowed is taken.
    Output: the dtype and channels that came in, ``size``.
    """

    field: str
    size: Size
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: Interpolation = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        check_size("RandomResizedCrop", self.size)
        check_range("RandomResizedCrop", "scale", self.scale, above=0)
        check_range("RandomResizedCrop", "ratio", self.ratio, above=0)

    @property
    def num_uniforms(self) -> int:
        """Area and ratio of each attempt, then top and left."""
        return 2 * _ATTEMPTS + 2

    def window(self, height: int, width: int, uniforms: Sequence[float]) -> Window:
        """Return the window for these draws."""
        smallest, largest = self.scale
        lowest, highest = math.log(self.ratio[0]), math.log(self.ratio[1])
        for attempt in range(0, 2 * _ATTEMPTS, 2):
            area = height * width * (smallest + (largest - smallest) * uniforms[attempt])
            ratio = math.exp(lowest + (highest - lowest) * uniforms[attempt + 1])
            crop_width, crop_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < crop_width <= width and 0 < crop_height <= height:
                top = whole_below(height - crop_height + 1, uniforms[-2])
                left = whole_below(width - crop_width + 1, uniforms[-1])
                return Window(top, left, crop_height, crop_width)
        return self._centred(height, width)

    def _centred(self, height: int, width: int) -> Window:
        low, high = self.ratio
        crop_height, crop_width = height, width
        if width / height < low:
            crop_height = max(1, round(width / low))
        elif width / height > high:
            crop_width = max(1, round(height * high))
        return Window((height - crop_height) // 2, (width - crop_width) // 2, crop_height, crop_width)
