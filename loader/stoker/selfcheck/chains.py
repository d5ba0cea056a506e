"""The chains of ops that each picture goes through."""

from __future__ import annotations

from dataclasses import dataclass

from stoker import ops, presets
from stoker.ops.op import Op

FIELD = "jpg"
"""The field of a sample that holds the file; ``image`` holds what is made of it."""

LONG = "20000x10.jpg"
"""A picture whose shorter side cannot be made 256 pixels: the other would be half a million."""

_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True, slots=True)
class Chain:
    """Ops, by their name in :data:`stoker.backends.tolerances.TOLERANCES`.

    ``leaves_out`` names pictures that would become too large.
    """

    name: str
    ops: tuple[Op, ...]
    leaves_out: frozenset[str] = frozenset()


def chains() -> tuple[Chain, ...]:
    """Return all chains."""
    strict = ops.DecodeImage(FIELD, to="image")
    tolerant = ops.DecodeImage(FIELD, to="image", strict=False)
    flip = ops.RandomHorizontalFlip("image")
    return (
        Chain("decode", (strict,)),
        Chain("decode, strict=False", (tolerant,)),
        Chain("bilinear", (strict, ops.RandomResizedCrop("image", 224), flip)),
        Chain("bicubic", (strict, ops.RandomResizedCrop("image", 224, interpolation="bicubic"), flip)),
        Chain("nearest", (strict, ops.RandomResizedCrop("image", 224, interpolation="nearest"), flip)),
        Chain("bilinear, antialias=False", (strict, ops.RandomResizedCrop("image", 224, antialias=False), flip)),
        Chain("pad, crop, flips", (strict, flip, *_cuts())),
        Chain("colour", (strict, ops.ColorJitter("image", 0.4, 0.4, 0.4))),
        Chain("blur", (strict, ops.Pad("image", 4), ops.GaussianBlur("image", 5))),
        Chain("erase", (strict, ops.RandomErasing("image", p=1.0, value=3.0))),
        Chain("normalize, layout", (strict, ops.Normalize("image", mean=_MEAN, std=_STD), _channels_first())),
        _preset("imagenet_train"),
        _preset("imagenet_eval"),
        _preset("imagenet_train", fast=True),
        _preset("imagenet_eval", fast=True),
    )


def _cuts() -> tuple[Op, ...]:
    return ops.RandomVerticalFlip("image"), ops.Pad("image", 3, fill=7), ops.CenterCrop("image", 64)


def _channels_first() -> Op:
    return ops.ToLayout("image", "NCHW")


def _preset(name: str, *, fast: bool = False) -> Chain:
    made = presets.make(name, "selfcheck.tar", fast=fast, batch_size=1).ops
    resizes_whole = any(isinstance(op, ops.Resize) for op in made)
    return Chain(
        f"{name}, fast" if fast else name,
        tuple(op for op in made if not isinstance(op, ops.Label)),
        frozenset({LONG} if resizes_whole else ()),
    )
