"""Optional packages, imported when first needed."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType

from stoker.errors import MissingDependencyError

_DISTRIBUTIONS = {"cv2": "opencv-python-headless", "PIL.Image": "pillow", "simplejpeg": "simplejpeg"}
_EXTRAS = {"soundfile": ("audio", "sound"), "soxr": ("audio", "sound"), "av": ("video", "video")}
"""The extra that brings a module, and what it is for; pictures' unless told."""


@functools.cache
def need(module: str) -> ModuleType:
    """Import ``module``. Raises MissingDependencyError with the extra that brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = _DISTRIBUTIONS.get(module, module)
        extra, purpose = _EXTRAS.get(module, ("cpu", "pictures"))
        raise MissingDependencyError(f"{package} is needed for {purpose}: pip install 'stoker[{extra}]'") from error
