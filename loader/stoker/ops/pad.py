"""A border round a picture."""

from __future__ import annotations

from typing import Literal

from stoker.errors import SpecError
from stoker.ops.image_op import ImageOp
from stoker.spec import spec

PaddingMode = Literal["constant", "edge", "reflect", "symmetric"]


@spec
class Pad(ImageOp):
    """Add a border (torchvision's op).

    ``padding`` is one number for all sides, (left and right, top and bottom), or (left, top, right, bottom), in
    pixels. ``fill`` is the border's value, one for all channels or one for each, for ``"constant"``; ``"edge"``
    repeats the last pixel, ``"reflect"`` mirrors without it, ``"symmetric"`` with it.
    """

    field: str
    padding: int | tuple[int, int] | tuple[int, int, int, int]
    fill: float | tuple[float, ...] = 0
    padding_mode: PaddingMode = "constant"

    def __post_init__(self) -> None:
        if min(self.sides) < 0:
            raise SpecError(f"Pad: padding is {self.padding}; expected numbers of at least 0 (CenterCrop takes away)")

    @property
    def sides(self) -> tuple[int, int, int, int]:
        """The border's width left, top, right and bottom."""
        match self.padding:
            case int(all_sides):
                return all_sides, all_sides, all_sides, all_sides
            case (left_right, top_bottom):
                return left_right, top_bottom, left_right, top_bottom
            case (left, top, right, bottom):
                return left, top, right, bottom
