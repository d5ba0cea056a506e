"""Some random changes of one strength."""

from __future__ import annotations

from collections.abc import Sequence

from stoker.errors import SpecError
from stoker.ops.augmentations import AUGMENTATIONS, Change, Limits, change, check_bins
from stoker.ops.chance import whole_below
from stoker.ops.image_op import ImageOp
from stoker.ops.sampling import Interpolation
from stoker.spec import spec

_LIMITS = Limits(shear=0.3, translate=150 / 331, is_relative=True, rotate=30, enhance=0.9, posterize=4)


@spec
class RandAugment(ImageOp):
    """Apply ``num_ops`` changes, drawn from fourteen with replacement, all of one magnitude (torchvision's op).

    ``magnitude`` is one of ``num_magnitude_bins`` steps from 0, which changes nothing, to the strongest. ``fill``, one
    number or one per channel, is what comes into the picture from outside. For uint8 pictures of 1 or 3 channels;
    pixels are Pillow's. (E. Cubuk et al.: RandAugment, arXiv 1909.13719)
    """

    field: str
    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: Interpolation = "nearest"
    fill: int | tuple[int, ...] = 0

    def __post_init__(self) -> None:
        check_bins("RandAugment", self.num_magnitude_bins)
        if self.num_ops < 0 or not 0 <= self.magnitude < self.num_magnitude_bins:
            limit = f"magnitude 0 to {self.num_magnitude_bins - 1} (num_magnitude_bins - 1), num_ops at least 0"
            raise SpecError(f"RandAugment: expected {limit}; found magnitude={self.magnitude}, num_ops={self.num_ops}")

    @property
    def num_uniforms(self) -> int:
        """Which change and which direction, for each."""
        return 2 * self.num_ops

    def changes(self, height: int, width: int, uniforms: Sequence[float]) -> tuple[Change, ...]:
        """Return what these draws do to a picture of this size, in order."""
        strength = self.magnitude / (self.num_magnitude_bins - 1)
        return tuple(
            change(
                AUGMENTATIONS[whole_below(len(AUGMENTATIONS), which)],
                strength,
                is_negative=direction < 0.5,
                limits=_LIMITS,
                height=height,
                width=width,
            )
            for which, direction in zip(uniforms[::2], uniforms[1::2], strict=True)
        )
