"""Kernel of ColorJitter, with Pillow's pixels."""

from __future__ import annotations

from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from stoker.backends.cpu.packages import need
from stoker.backends.cpu.pillow_image import from_pillow, to_pillow
from stoker.backends.program import Kernel
from stoker.backends.registry import implements
from stoker.ops.color_jitter import ColorJitter, Step
from stoker.sample import Sample


@implements(ColorJitter)
def color_jitter(op: ColorJitter) -> Kernel:
    """Make the pixels and adjust them."""
    need("PIL.ImageEnhance")

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:
        steps = op.steps(uniforms.tolist())
        if not steps:
            return
        image = to_pillow(sample, op.field)
        for step in steps:
            image = _adjusted(image, step)
        sample.fields[op.field] = from_pillow(image)

    return kernel


def _adjusted(image: Any, step: Step) -> Any:
    enhance = need("PIL.ImageEnhance")
    match step.adjustment:
        case "brightness":
            return enhance.Brightness(image).enhance(step.amount)
        case "contrast":
            return enhance.Contrast(image).enhance(step.amount)
        case "saturation":
            return enhance.Color(image).enhance(step.amount)
        case "hue":
            return _turned(image, step.amount)
    assert_never(step.adjustment)


def _turned(image: Any, turns: float) -> Any:
    """Turn the hue, whose whole circle is 256 steps."""
    if image.mode == "L":
        return image
    hue, saturation, value = image.convert("HSV").split()
    turned = np.asarray(hue) + np.uint8(int(turns * 255) % 256)
    pillow = need("PIL.Image")
    return pillow.merge("HSV", (pillow.fromarray(turned), saturation, value)).convert("RGB")
