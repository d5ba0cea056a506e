"""The real photographs that every generated data set is cut from.

They lie in the wheels of scikit-image and scikit-learn (the ``demo`` extra); nothing is downloaded, neither package is
imported. A folder of one's own pictures can be added.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stoker.errors import MissingDependencyError, SpecError

SHIPPED = {
    "skimage": (
        "data",
        (
            "astronaut.png",
            "chelsea.png",
            "coffee.png",
            "hubble_deep_field.jpg",
            "ihc.png",
            "motorcycle_left.png",
            "retina.jpg",
            "rocket.jpg",
        ),
    ),
    "sklearn": ("datasets/images", ("china.jpg", "flower.jpg")),
}
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff"})
MIN_SIDE_PIXELS = 200


@dataclass(frozen=True, slots=True)
class Photograph:
    """One source picture: ``pixels`` is uint8 RGB, height × width × 3."""

    name: str
    pixels: NDArray[np.uint8]


def shipped() -> list[Photograph]:
    """Load the photographs that ship with the ``demo`` extra, always in the same order."""
    return [load(path) for path in shipped_paths()]


def shipped_paths() -> list[Path]:
    """Return where the shipped photographs lie. Raises MissingDependencyError if a package is not installed."""
    found: list[Path] = []
    for package, (folder, names) in SHIPPED.items():
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise MissingDependencyError(f"the photographs lie in {package}; pip install 'stoker[demo]' brings it")
        root = Path(spec.submodule_search_locations[0]) / folder
        found += [root / name for name in names]
    return found


def from_folder(folder: Path) -> list[Photograph]:
    """Load every picture below ``folder`` whose sides have at least 200 pixels, sorted by path."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    found = [photograph for photograph in map(load, paths) if min(photograph.pixels.shape[:2]) >= MIN_SIDE_PIXELS]
    if not found:
        raise SpecError(f"no picture of at least {MIN_SIDE_PIXELS} pixels a side below {folder}")
    return found


def load(path: Path) -> Photograph:
    """Decode one picture file to RGB."""
    from PIL import Image

    with Image.open(path) as image:
        return Photograph(path.name, np.asarray(image.convert("RGB")))
