"""Pictures handed to Pillow and taken back."""

from __future__ import annotations

from typing import Any

import numpy as np

from stoker.backends.cpu.packages import need
from stoker.backends.cpu.picture import ArraySource, Picture, pixels
from stoker.errors import SampleError
from stoker.sample import Sample


def to_pillow(sample: Sample, field: str) -> Any:
    """Return a field as an image of mode L or RGB. Raises SampleError for a picture of another kind."""
    found = pixels(sample, field)
    if found.dtype != np.uint8 or found.shape[2] not in (1, 3):
        kind = f"{found.shape[2]} channels of {found.dtype}"
        raise SampleError(f"field {field!r} is a picture of {kind}; expected 1 or 3 channels of uint8")
    return need("PIL.Image").fromarray(np.ascontiguousarray(found[..., 0] if found.shape[2] == 1 else found))


def from_pillow(image: Any) -> Picture:
    """Return an image of mode L or RGB as a picture."""
    made = np.asarray(image)
    return Picture(ArraySource(made if made.ndim == 3 else made[..., None]))
