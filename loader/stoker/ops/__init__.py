"""The steps of a pipeline, one per file; each is imported when first used."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker.ops.cache import Cache
    from stoker.ops.cast import Cast
    from stoker.ops.center_crop import CenterCrop
    from stoker.ops.color_jitter import ColorJitter
    from stoker.ops.decode_audio import DecodeAudio
    from stoker.ops.decode_image import DecodeImage
    from stoker.ops.decode_json import DecodeJson
    from stoker.ops.decode_numpy import DecodeNumpy
    from stoker.ops.decode_video import DecodeVideo
    from stoker.ops.filter import Filter
    from stoker.ops.gaussian_blur import GaussianBlur
    from stoker.ops.label import Label
    from stoker.ops.map import Map
    from stoker.ops.mel_spectrogram import MelSpectrogram
    from stoker.ops.normalize import Normalize
    from stoker.ops.pad import Pad
    from stoker.ops.rand_augment import RandAugment
    from stoker.ops.random_erasing import RandomErasing
    from stoker.ops.random_horizontal_flip import RandomHorizontalFlip
    from stoker.ops.random_resized_crop import RandomResizedCrop
    from stoker.ops.random_vertical_flip import RandomVerticalFlip
    from stoker.ops.rename import Rename
    from stoker.ops.resample_audio import ResampleAudio
    from stoker.ops.resize import Resize
    from stoker.ops.select import Select
    from stoker.ops.to_layout import ToLayout
    from stoker.ops.trivial_augment import TrivialAugment

__all__ = [
    "Cache",
    "Cast",
    "CenterCrop",
    "ColorJitter",
    "DecodeAudio",
    "DecodeImage",
    "DecodeJson",
    "DecodeNumpy",
    "DecodeVideo",
    "Filter",
    "GaussianBlur",
    "Label",
    "Map",
    "MelSpectrogram",
    "Normalize",
    "Pad",
    "RandAugment",
    "RandomErasing",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Rename",
    "ResampleAudio",
    "Resize",
    "Select",
    "ToLayout",
    "TrivialAugment",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'stoker.ops' has no op {name!r}; there are: {', '.join(__all__)}")
    file = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    op = getattr(importlib.import_module(f"stoker.ops.{file}"), name)
    globals()[name] = op
    return op


def __dir__() -> list[str]:
    return __all__
