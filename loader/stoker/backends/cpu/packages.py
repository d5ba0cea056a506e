"""Optional packages, imported when first needed."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType

from stoker.errors import MissingDependencyError

_DISTRIBUTIONS = {"cv2": "opencv-python-headless", "PIL.Image": "pillow", "simplejpeg": "simplejpeg"}


@functools.cache
def need(module: str) -> ModuleType:
    """Import ``module``. Raises MissingDependencyError with the extra that brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = _DISTRIBUTIONS.get(module, module)
        raise MissingDependencyError(f"{package} is needed for pictures: pip install 'stoker[cpu]'") from error
