"""A picture at another size."""

from __future__ import annotations

from stoker.errors import SpecError
from stoker.ops.geometry import Size, check_size, pair
from stoker.ops.image_op import ImageOp
from stoker.ops.sampling import Interpolation
from stoker.spec import spec


@spec
class Resize(ImageOp):
    """Resize to ``size``: (height, width), or one number for the shorter side, the ratio kept (torchvision's op).

    ``max_size`` bounds the longer side when ``size`` is one number; the shorter side is then smaller than ``size``
    where need be.
    """

    field: str
    size: Size
    interpolation: Interpolation = "bilinear"
    max_size: int | None = None
    antialias: bool = True

    def __post_init__(self) -> None:
        check_size("Resize", self.size)
        if self.max_size is not None and not isinstance(self.size, int):
            raise SpecError(f"Resize: max_size needs size to be one number, found {self.size}")
        if self.max_size is not None and isinstance(self.size, int) and self.max_size <= self.size:
            raise SpecError(f"Resize: max_size={self.max_size} must be larger than size={self.size}, the shorter side")

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Return the height and width that a picture of this size gets."""
        if not isinstance(self.size, int):
            return pair(self.size)
        short, long = min(height, width), max(height, width)
        new_short, new_long = self.size, int(self.size * long / short)
        if self.max_size is not None and new_long > self.max_size:
            new_short, new_long = int(self.max_size * new_short / new_long), self.max_size
        new_short = max(1, new_short)
        return (new_long, new_short) if height >= width else (new_short, new_long)
