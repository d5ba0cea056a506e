"""What Pillow makes of a picture, with the windows and numbers that ours are made with."""

from __future__ import annotations

import gzip
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from stoker.backends.program import Program
from stoker.ops.center_crop import CenterCrop
from stoker.ops.decode_image import DecodeImage
from stoker.ops.geometry import Window, pair
from stoker.ops.op import Op
from stoker.ops.random_horizontal_flip import RandomHorizontalFlip
from stoker.ops.random_resized_crop import RandomResizedCrop
from stoker.ops.resize import Resize
from stoker.selfcheck.making import SEED

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}


def make_all(program: Program, files: Mapping[str, bytes]) -> dict[str, NDArray[Any]]:
    """Make each picture that Pillow can read whole, with the numbers :func:`stoker.selfcheck.making.make_all` has."""
    uniforms = program.uniforms(SEED, 0, np.arange(len(files)))
    made = {}
    for index, (name, content) in enumerate(files.items()):
        image = _opened(content)
        if image is not None:
            numbers = uniforms[index].tolist()
            for op, _ in program.kernels:
                image = _changed(image, op, numbers[: op.num_uniforms])
                del numbers[: op.num_uniforms]
            made[name] = np.asarray(image)
    return made


def _opened(content: bytes) -> Image.Image | None:
    """The picture upright, in RGB; None if it is no picture, or one of 16 bits, of which Pillow takes 8 another way."""
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    try:
        image = Image.open(io.BytesIO(content))
        image.load()
    except (OSError, SyntaxError):
        return None
    if image.mode.startswith("I") or _is_16_bit_png(content):
        return None
    return ImageOps.exif_transpose(image).convert("RGB")


def _is_16_bit_png(content: bytes) -> bool:
    return content.startswith(b"\x89PNG") and content[24] == 16


def _changed(image: Image.Image, op: Op, uniforms: Sequence[float]) -> Image.Image:
    if isinstance(op, DecodeImage):
        return image
    if isinstance(op, RandomResizedCrop):
        cut = _cut(image, op.window(image.height, image.width, uniforms))
        return _resized(cut, pair(op.size), op.interpolation)
    if isinstance(op, Resize):
        return _resized(image, op.output_size(image.height, image.width), op.interpolation)
    if isinstance(op, CenterCrop):
        return _cut(image, op.window(image.height, image.width))
    if isinstance(op, RandomHorizontalFlip):
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if op.flips(uniforms) else image
    raise NotImplementedError(f"{op.label} is not compared with Pillow")


def _cut(image: Image.Image, window: Window) -> Image.Image:
    return image.crop((window.left, window.top, window.right, window.bottom))


def _resized(image: Image.Image, size: tuple[int, int], interpolation: str) -> Image.Image:
    height, width = size
    return image.resize((width, height), _FILTERS[interpolation])
