"""How a picture's pixels are made anew at another size or place."""

from __future__ import annotations

from typing import Literal, NamedTuple

Interpolation = Literal["nearest", "bilinear", "bicubic"]


class Sampling(NamedTuple):
    """An interpolation, with or without the widened filter that keeps a shrunken picture free of aliasing.

    With ``antialias`` pixels are those of Pillow, without it those of torch's plain interpolation. ``nearest`` knows
    no difference.
    """

    interpolation: Interpolation
    antialias: bool
