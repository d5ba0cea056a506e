"""One random change of random strength."""

from __future__ import annotations

from collections.abc import Sequence

from stoker.ops.augmentations import AUGMENTATIONS, Change, Limits, change, check_bins
from stoker.ops.chance import whole_below
from stoker.ops.image_op import ImageOp
from stoker.ops.sampling import Interpolation
from stoker.spec import spec

_LIMITS = Limits(shear=0.99, translate=32, is_relative=False, rotate=135, enhance=0.99, posterize=6)


@spec
class TrivialAugment(ImageOp):
    """Apply one change, drawn from fourteen, of a magnitude that is drawn too (torchvision's TrivialAugmentWide).

    Arguments and pixels as in :class:`RandAugment`. (S. Müller, F. Hutter: TrivialAugment, arXiv 2103.10158)
    """

    field: str
    num_magnitude_bins: int = 31
    interpolation: Interpolation = "nearest"
    fill: int | tuple[int, ...] = 0

    def __post_init__(self) -> None:
        check_bins("TrivialAugment", self.num_magnitude_bins)

    @property
    def num_uniforms(self) -> int:
        """Which change, which magnitude, which direction."""
        return 3

    def changes(self, height: int, width: int, uniforms: Sequence[float]) -> tuple[Change, ...]:
        """Return what these draws do to a picture of this size."""
        which, magnitude, direction = uniforms
        made = change(
            AUGMENTATIONS[whole_below(len(AUGMENTATIONS), which)],
            whole_below(self.num_magnitude_bins, magnitude) / (self.num_magnitude_bins - 1),
            is_negative=direction < 0.5,
            limits=_LIMITS,
            height=height,
            width=width,
        )
        return (made,)
