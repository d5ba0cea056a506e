"""The changes that RandAugment and TrivialAugment choose from."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

from stoker.errors import SpecError

Augmentation = Literal[
    "Identity",
    "ShearX",
    "ShearY",
    "TranslateX",
    "TranslateY",
    "Rotate",
    "Brightness",
    "Color",
    "Contrast",
    "Sharpness",
    "Posterize",
    "Solarize",
    "AutoContrast",
    "Equalize",
]

AUGMENTATIONS: tuple[Augmentation, ...] = get_args(Augmentation)
"""In torchvision's order."""


class Change(NamedTuple):
    """One augmentation and how strong it is.

    The magnitude is a slope (Shear), pixels (Translate), degrees against the clock (Rotate), what is added to a factor
    of 1 (Brightness, Color, Contrast, Sharpness), bits kept (Posterize), or a fraction of white (Solarize).
    """

    augmentation: Augmentation
    magnitude: float = 0.0


class Limits(NamedTuple):
    """The largest magnitudes. ``is_relative``: translations are fractions of the picture's sides."""

    shear: float
    translate: float
    is_relative: bool
    rotate: float
    enhance: float
    posterize: int

    def largest(self, height: int, width: int) -> Mapping[Augmentation, float]:
        """Return the largest magnitude of each augmentation that has one, for a picture of this size."""
        return MappingProxyType(
            {
                "ShearX": self.shear,
                "ShearY": self.shear,
                "TranslateX": self.translate * width if self.is_relative else self.translate,
                "TranslateY": self.translate * height if self.is_relative else self.translate,
                "Rotate": self.rotate,
                "Brightness": self.enhance,
                "Color": self.enhance,
                "Contrast": self.enhance,
                "Sharpness": self.enhance,
            }
        )


def change(
    augmentation: Augmentation, strength: float, *, is_negative: bool, limits: Limits, height: int, width: int
) -> Change:
    """Return the change of this strength, 0 to 1; ``is_negative`` turns its direction where it has one."""
    if augmentation == "Posterize":
        return Change(augmentation, round(8 - strength * limits.posterize))
    if augmentation == "Solarize":
        return Change(augmentation, 1 - strength)
    largest = limits.largest(height, width).get(augmentation)
    if largest is None:
        return Change(augmentation)
    return Change(augmentation, -strength * largest if is_negative else strength * largest)


def check_bins(owner: str, num_magnitude_bins: int) -> None:
    """Raise SpecError unless there are two magnitudes at least."""
    if num_magnitude_bins < 2:
        raise SpecError(f"{owner}: num_magnitude_bins is {num_magnitude_bins}; it must be at least 2")
