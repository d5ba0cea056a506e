"""By how much the pixels of the back-ends may differ: published in README.md, held to by ``stoker selfcheck``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BORDER_PIXELS = 2
"""How far into a picture a resize sees what lies beyond it."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Absolute differences of one picture: their mean, the largest one, and the largest one at the border.

    Of 255 for uint8, else of the numbers themselves. Without ``border`` the border is like the rest.
    """

    mean: float = 0.0
    max: float = 0.0
    border: float | None = None

    def __str__(self) -> str:
        if self.max == 0:
            return "0"
        border = "" if self.border is None else f", border {self.border:.3g}"
        return f"mean {self.mean:.3g}, max {self.max:.3g}{border}"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What one chain of ops may differ by. ``chain`` names it as :func:`stoker.selfcheck.chains.chains` does.

    * ``pillow``: ``cpu`` from Pillow; None where other tests compare (``tests/unit/ops``).
    * ``dali``: DALI on the CPU from ``cpu``.
    * ``gpu``: the same with the ops on a GPU, pictures decoded on the CPU. Not measured on a GPU yet.
    * ``mixed``: the same with pictures decoded on the GPU as well. Not measured on a GPU yet.
    """

    chain: str
    pillow: Limit | None
    dali: Limit
    gpu: Limit
    mixed: Limit


# A level of rounding: torch rounds to bytes between the two passes of a resize and after them, DALI after them only.
# Half the pixels may be off by one, a few by two.
_ROUNDED = Limit(0.6, 2)

# Beyond the picture DALI repeats its last pixels, Pillow and torch leave that part of the filter out. Where a picture
# is made smaller, the first pixel's triangle has 1/8 of its weight there, so that it differs by 255/8 at most, in a
# corner by 255 (1 - (7/8)²) = 60; the two levels of rounding come on top. Of Pillow's cubic it is 0.08 in place of 1/8.
_BILINEAR = Limit(0.6, 2, 62)

# torch clips to 0…255 between the passes, as Pillow does; DALI only at the end. That shows at hard edges: by 10 on
# photographs and by 34, mean 2.8, on noise of black and white, which is no picture.
_BICUBIC = Limit(1.5, 24, 62)

# Three adjustments, each cut to whole numbers, off by one each; a later one multiplies by up to 1.4, saturation by 1.7:
# 1 × 1.4 × 1.7 + 1.7 + 1 at most, and a mean brightness that is rounded to its neighbour adds 0.4.
_COLOUR = Limit(1.0, 6)

# Two convolutions in float32, rounded once: off by one where the sum lies between two numbers.
_BLUR = Limit(0.01, 1)

# Float32 numbers up to 2.7, three operations: 2⁻²³ × 2.7 each. The GPU may multiply by the reciprocal.
_FLOATS = Limit(5e-7, 2e-6)
_GPU_FLOATS = Limit(5e-6, 1e-5)

# What nvJPEG may differ by from libjpeg-turbo, whose upsampling it is told to take (NVIDIA/DALI 4662): the inverse
# cosine transform is its own, two or three levels of each of Y, Cb and Cr, which the step to RGB adds up to a dozen;
# more than twice that, since nobody has looked yet.
_NVJPEG = Limit(2, 32)

# By how much a difference of what comes in grows: the cubic's weights, without their signs, over both passes; the three
# adjustments; ImageNet's smallest deviation, 0.224 of 255.
_CUBIC, _JITTER, _WHITE = 1.4, 3.5, 0.018

# Pillow does the vertical pass first where that is cheaper, torch never does; each rounds in between.
_PASSES = Limit(0.4, 2)

_EXACT = Limit()


def _after_nvjpeg(limit: Limit, gain: float = 1.0) -> Limit:
    """What a chain may differ by on top of its own when it begins with other pixels; ``gain``: how it enlarges them."""
    border = None if limit.border is None else limit.border + gain * _NVJPEG.max
    return Limit(limit.mean + gain * _NVJPEG.mean, limit.max + gain * _NVJPEG.max, border)


def _tolerance(
    chain: str, dali: Limit, *, pillow: Limit | None = None, gpu: Limit | None = None, gain: float = 1.0
) -> Tolerance:
    on_gpu = gpu or dali
    return Tolerance(chain, pillow, dali, on_gpu, _after_nvjpeg(on_gpu, gain))


TOLERANCES: tuple[Tolerance, ...] = (
    _tolerance("decode", _EXACT, pillow=_EXACT),
    _tolerance("decode, strict=False", _EXACT, pillow=_EXACT),
    _tolerance("bilinear", _BILINEAR, pillow=_PASSES),
    _tolerance("bicubic", _BICUBIC, pillow=Limit(0.4, 16), gain=_CUBIC),
    _tolerance("nearest", _EXACT, pillow=_EXACT),
    _tolerance("bilinear, antialias=False", _ROUNDED),
    _tolerance("pad, crop, flips", _EXACT),
    _tolerance("colour", _COLOUR, gain=_JITTER),
    _tolerance("blur", _BLUR),
    _tolerance("erase", _EXACT),
    _tolerance("normalize, layout", _FLOATS, gpu=_GPU_FLOATS, gain=_WHITE),
    _tolerance("imagenet_train", _BILINEAR, pillow=_PASSES),
    _tolerance("imagenet_eval", _BILINEAR, pillow=_PASSES),
    _tolerance("imagenet_train, fast", _ROUNDED),
    _tolerance("imagenet_eval, fast", _ROUNDED),
)


def as_table(tolerances: Sequence[Tolerance] = TOLERANCES) -> list[str]:
    """The lines of the table in README.md."""
    head = ["chain", "`cpu` and Pillow", "`dali`, CPU", "`dali`, ops on a GPU", "`dali`, decoded there too"]
    rows = [
        [each.chain, str(each.pillow or "–"), str(each.dali), str(each.gpu), str(each.mixed)] for each in tolerances
    ]
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
