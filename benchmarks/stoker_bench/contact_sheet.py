"""Lays the pictures of a batch out as one, so that a person can look at what the model is fed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

GAP_PIXELS = 4
BACKGROUND = 24


def sheet(images: NDArray[Any], num_columns: int | None = None) -> NDArray[np.uint8]:
    """Return one uint8 RGB picture of ``images``, which are uint8 (n, height, width, 3), row by row."""
    num_images, height, width, _ = images.shape
    columns = num_columns or math.ceil(math.sqrt(num_images))
    rows = math.ceil(num_images / columns)
    cell_height, cell_width = height + GAP_PIXELS, width + GAP_PIXELS
    size = (rows * cell_height + GAP_PIXELS, columns * cell_width + GAP_PIXELS, 3)
    laid = np.full(size, BACKGROUND, dtype=np.uint8)
    for number, image in enumerate(images):
        top = GAP_PIXELS + number // columns * cell_height
        left = GAP_PIXELS + number % columns * cell_width
        laid[top : top + height, left : left + width] = image
    return laid


def write(path: Path, images: NDArray[Any], num_columns: int | None = None) -> None:
    """Write :func:`sheet` as a PNG file."""
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(sheet(images, num_columns)).save(path, "PNG")
