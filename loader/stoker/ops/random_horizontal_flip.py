"""A picture mirrored left for right, or not, by chance."""

from __future__ import annotations

from collections.abc import Sequence

from stoker.ops.chance import check_probability
from stoker.ops.image_op import ImageOp
from stoker.spec import spec


@spec
class RandomHorizontalFlip(ImageOp):
    """Mirror the picture, left for right, with probability ``p``."""

    field: str
    p: float = 0.5

    def __post_init__(self) -> None:
        check_probability("RandomHorizontalFlip", self.p)

    @property
    def num_uniforms(self) -> int:
        """Whether to mirror."""
        return 1

    def flips(self, uniforms: Sequence[float]) -> bool:
        """Whether these draws mirror the picture."""
        return uniforms[0] < self.p
