"""Pixels shifted and scaled, channel by channel."""

from __future__ import annotations

from stoker.errors import SpecError
from stoker.ops.image_op import ImageOp
from stoker.spec import spec


@spec
class Normalize(ImageOp):
    """Subtract ``mean`` and divide by ``std``, one number per channel, on the scale where white is 1.

    The result is float32. Whole numbers are first divided by the largest of their dtype (torchvision's
    ``ToDtype(float32, scale=True)``, then ``Normalize``); float32 pixels are taken as they are.
    """

    field: str
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.mean or len(self.mean) != len(self.std):
            raise SpecError(f"Normalize: {len(self.mean)} means and {len(self.std)} stds; give one of each per channel")
        if 0 in self.std:
            raise SpecError(f"Normalize: std is {self.std}; it cannot be 0")
