"""A picture mirrored top for bottom, or not, by chance."""

from __future__ import annotations

from collections.abc import Sequence

from stoker.ops.chance import check_probability
from stoker.ops.image_op import ImageOp
from stoker.spec import spec


@spec
class RandomVerticalFlip(ImageOp):
    """Mirror the picture, top for bottom, with probability ``p``."""

    field: str
    p: float = 0.5

    def __post_init__(self) -> None:
        check_probability("RandomVerticalFlip", self.p)

    @property
    def num_uniforms(self) -> int:
        """Whether to mirror."""
        return 1

    def flips(self, uniforms: Sequence[float]) -> bool:
        """Whether these draws mirror the picture."""
        return uniforms[0] < self.p
