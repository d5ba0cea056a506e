"""Everything that is imported late, now."""

from __future__ import annotations

import contextlib

from stoker.backends.cpu import resample, turbo
from stoker.backends.cpu.packages import need

_MODULES = ("PIL.Image", "PIL.ImageOps", "PIL.ImageEnhance", "cv2", "simplejpeg")


def preload() -> None:
    """Import what the kernels import when first needed, as far as it is installed.

    That takes seconds, with the GIL held for long at a time: for processes in which other threads must answer soon.
    What is not installed is no error.
    """
    for module in _MODULES:
        with contextlib.suppress(ImportError):
            need(module)
    with contextlib.suppress(ImportError):
        need("PIL.Image").preinit()  # the usual formats, which Pillow too imports at the first picture
    with contextlib.suppress(ImportError):
        turbo.load()
    with contextlib.suppress(ImportError, OSError):  # OSError: torch is there, and a library that it needs is not
        resample.torch_here()
