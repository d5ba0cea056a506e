"""What a script sets for its whole process, and expects in its workers."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of Python, torch, NumPy, Pillow and OpenCV that a forked worker would inherit; None where not loaded."""

    recursion_limit: int
    log_level: int
    log_format: str | None
    default_dtype: torch.dtype
    has_gradients: bool
    is_deterministic: bool
    warns_only: bool
    numpy_errors: dict[str, Any]
    loads_truncated_images: bool | None
    max_image_pixels: tuple[int | None] | None
    num_cv_threads: int | None

    @classmethod
    def taken(cls) -> Self:
        """Those of this process."""
        image_file, image, cv2 = (sys.modules.get(name) for name in ("PIL.ImageFile", "PIL.Image", "cv2"))
        root = logging.getLogger()
        shown = next((each for each in root.handlers if type(each) is logging.StreamHandler), None)
        formatter = shown.formatter if shown is not None else None
        return cls(
            recursion_limit=sys.getrecursionlimit(),
            log_level=root.level,
            log_format=formatter._fmt if formatter is not None else None,
            default_dtype=torch.get_default_dtype(),
            has_gradients=torch.is_grad_enabled(),
            is_deterministic=torch.are_deterministic_algorithms_enabled(),
            warns_only=torch.is_deterministic_algorithms_warn_only_enabled(),
            numpy_errors=dict(np.geterr()),
            loads_truncated_images=getattr(image_file, "LOAD_TRUNCATED_IMAGES", None),
            max_image_pixels=(image.MAX_IMAGE_PIXELS,) if image is not None else None,
            num_cv_threads=cv2.getNumThreads() if cv2 is not None else None,
        )

    def put(self) -> None:
        """Make them those of this process, which is a worker."""
        sys.setrecursionlimit(self.recursion_limit)
        if self.log_format is not None:
            logging.basicConfig(format=self.log_format)  # nothing if this worker logs already
        logging.getLogger().setLevel(self.log_level)
        torch.set_default_dtype(self.default_dtype)
        torch.set_grad_enabled(self.has_gradients)
        torch.use_deterministic_algorithms(self.is_deterministic, warn_only=self.warns_only)
        np.seterr(**self.numpy_errors)
        if self.loads_truncated_images is not None:
            from PIL import ImageFile

            ImageFile.LOAD_TRUNCATED_IMAGES = self.loads_truncated_images
        if self.max_image_pixels is not None:
            from PIL import Image

            Image.MAX_IMAGE_PIXELS = self.max_image_pixels[0]
        if self.num_cv_threads is not None:
            import cv2

            cv2.setNumThreads(self.num_cv_threads)
