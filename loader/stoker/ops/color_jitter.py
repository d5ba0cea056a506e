"""Brightness, contrast, saturation and hue changed by chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from stoker.errors import SpecError
from stoker.ops.chance import between
from stoker.ops.image_op import ImageOp
from stoker.spec import spec

Strength = float | tuple[float, float]
Adjustment = Literal["brightness", "contrast", "saturation", "hue"]

_ADJUSTMENTS: tuple[Adjustment, ...] = ("brightness", "contrast", "saturation", "hue")


class Step(NamedTuple):
    """One adjustment: a factor around 1, or for hue a shift around 0 in turns of the colour wheel."""

    adjustment: Adjustment
    amount: float


@spec
class ColorJitter(ImageOp):
    """Change brightness, contrast, saturation and hue, in random order (torchvision's op; pixels are Pillow's).

    A single number ``x`` means a factor from max(0, 1 - x) to 1 + x, for hue a shift from -x to x, at most 0.5; a pair
    gives the limits. 0 leaves the property alone. For uint8 pictures of 3 channels, or of 1, of which saturation and
    hue mean nothing.
    """

    field: str
    brightness: Strength = 0.0
    contrast: Strength = 0.0
    saturation: Strength = 0.0
    hue: Strength = 0.0

    def __post_init__(self) -> None:
        for adjustment in _ADJUSTMENTS:
            low, high = self._limits(adjustment)
            least, most = (-0.5, 0.5) if adjustment == "hue" else (0.0, float("inf"))
            if not least <= low <= high <= most:
                found = getattr(self, adjustment)
                raise SpecError(f"ColorJitter: {adjustment} is {found}; its limits must lie in {least} to {most}")

    @property
    def num_uniforms(self) -> int:
        """The amount of each of the four adjustments, then four numbers whose ranks are the order."""
        return 2 * len(_ADJUSTMENTS)

    def steps(self, uniforms: Sequence[float]) -> tuple[Step, ...]:
        """Return the adjustments for these draws, in order, without those that are left alone."""
        order = sorted(range(len(_ADJUSTMENTS)), key=lambda number: uniforms[len(_ADJUSTMENTS) + number])
        steps = (Step(_ADJUSTMENTS[k], between(*self._limits(_ADJUSTMENTS[k]), uniforms[k])) for k in order)
        return tuple(step for step in steps if getattr(self, step.adjustment) not in (0, (0, 0)))

    def _limits(self, adjustment: Adjustment) -> tuple[float, float]:
        strength: Strength = getattr(self, adjustment)
        if isinstance(strength, tuple):
            return strength
        if strength < 0:
            return strength, strength
        return (-strength, strength) if adjustment == "hue" else (max(0.0, 1 - strength), 1 + strength)
