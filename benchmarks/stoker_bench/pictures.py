"""Cuts one JPEG file out of a photograph, always the same one for the same seed and number.

The sizes spread as in ImageNet: three in four have a long side of 500 pixels, mostly 4:3 or 3:2 and mostly lying.
Quality is 85 to 95 with 4:2:0 chroma. Mild grain stands in for what a camera's sensor adds, so that a file costs as
many bytes as a camera's would.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stoker_bench.photographs import Photograph

ASPECTS = (4 / 3, 3 / 2, 1.0, 3 / 4, 2 / 3)
ASPECT_WEIGHTS = (0.5, 0.2, 0.1, 0.15, 0.05)
USUAL_LONG_SIDE = 500
USUAL_SHARE = 0.75
LONG_SIDE_LIMITS = (240, 1024)
GRAIN_LEVELS = (2.0, 6.0)
QUALITIES = (85, 96)


@dataclass(frozen=True, slots=True)
class Cut:
    """What is cut: the window in the photograph, the size it is brought to, the grain, the quality."""

    left: int
    top: int
    window_width: int
    window_height: int
    width: int
    height: int
    flip: bool
    grain: float
    quality: int


def generator(seed: int, number: int) -> np.random.Generator:
    """Return the random numbers of picture ``number`` of the data set ``seed``."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, number], dtype=np.uint64)))


def draw_size(rng: np.random.Generator) -> tuple[int, int]:
    """Draw a width and a height in pixels."""
    aspect = float(rng.choice(ASPECTS, p=ASPECT_WEIGHTS))
    long_side = USUAL_LONG_SIDE
    if rng.random() >= USUAL_SHARE:
        long_side = int(np.clip(USUAL_LONG_SIDE * np.exp(0.45 * rng.standard_normal()), *LONG_SIDE_LIMITS))
    short_side = round(long_side * min(aspect, 1 / aspect))
    return (long_side, short_side) if aspect >= 1 else (short_side, long_side)


def draw_cut(rng: np.random.Generator, source_width: int, source_height: int) -> Cut:
    """Draw a cut from a photograph of this size: a window of half to all of what fits, of the aspect drawn."""
    width, height = draw_size(rng)
    scale = min(source_width / width, source_height / height) * rng.uniform(0.5, 1.0)
    window_width = min(source_width, max(8, round(width * scale)))
    window_height = min(source_height, max(8, round(height * scale)))
    return Cut(
        left=int(rng.integers(source_width - window_width + 1)),
        top=int(rng.integers(source_height - window_height + 1)),
        window_width=window_width,
        window_height=window_height,
        width=width,
        height=height,
        flip=bool(rng.random() < 0.5),
        grain=float(rng.uniform(*GRAIN_LEVELS)),
        quality=int(rng.integers(*QUALITIES)),
    )


def jpeg(photograph: Photograph, seed: int, number: int) -> bytes:
    """Return the JPEG file of picture ``number`` of the data set ``seed``, cut from ``photograph``."""
    rng = generator(seed, number)
    height, width = photograph.pixels.shape[:2]
    cut = draw_cut(rng, width, height)
    return encode(_add_grain(_resized(photograph.pixels, cut), cut.grain, rng), cut.quality)


def encode(pixels: NDArray[np.uint8], quality: int) -> bytes:
    """Encode RGB pixels with 4:2:0 chroma."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=quality, subsampling="4:2:0")
    return out.getvalue()


def _resized(pixels: NDArray[np.uint8], cut: Cut) -> NDArray[np.uint8]:
    from PIL import Image

    box = (cut.left, cut.top, cut.left + cut.window_width, cut.top + cut.window_height)
    image = Image.fromarray(pixels).resize((cut.width, cut.height), Image.Resampling.BICUBIC, box=box)
    resized = np.asarray(image)
    return resized[:, ::-1] if cut.flip else resized


def _add_grain(pixels: NDArray[np.uint8], level: float, rng: np.random.Generator) -> NDArray[np.uint8]:
    grain = rng.standard_normal(pixels.shape[:2], dtype=np.float32) * np.float32(level)
    return np.clip(pixels + grain[..., None], 0, 255).astype(np.uint8)
