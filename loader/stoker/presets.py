"""Common pipelines by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stoker import ops
from stoker.errors import SpecError
from stoker.formats.source import Source, tar
from stoker.ops.op import Op
from stoker.pipeline import Pipeline

_PICTURES = "jpg;jpeg;png;webp"
_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)


def _imagenet_train(size: int, *, fast: bool) -> list[Op]:
    return [
        ops.DecodeImage(_PICTURES, to="image", strict=False),
        ops.RandomResizedCrop("image", size, antialias=not fast),
        ops.RandomHorizontalFlip("image"),
        ops.Label("cls"),
    ]


def _imagenet_eval(size: int, *, fast: bool) -> list[Op]:
    return [
        ops.DecodeImage(_PICTURES, to="image", strict=False),
        ops.Resize("image", size * 256 // 224, antialias=not fast),
        ops.CenterCrop("image", size),
        ops.Label("cls"),
    ]


_PRESETS: dict[str, tuple[Callable[..., list[Op]], dict[str, Any]]] = {
    "imagenet_train": (_imagenet_train, {"shuffle": True, "drop_last": True}),
    "imagenet_eval": (_imagenet_eval, {"shuffle": False, "drop_last": False}),
}


def make(
    name: str,
    source: Source | str | Sequence[str],
    *,
    size: int = 224,
    fast: bool = False,
    normalize: bool = False,
    storage_options: dict[str, str] | None = None,
    **settings: Any,
) -> Pipeline:
    """Make the preset ``name`` over ``source`` (a source, or URLs of tars).

    ``imagenet_train``: random resized crop, random flip, label; shuffled, ``drop_last``. ``imagenet_eval``: resize,
    centre crop, label. Both give ``image`` uint8 (batch, size, size, 3) and ``cls`` int64 (batch,), with the pixels of
    torchvision's transforms on Pillow images, and Pillow's verdict on damaged files (``strict=False``).

    ``fast`` takes plain bilinear, see ``backends/README.md`` for by how much it differs. ``normalize`` gives float32
    (batch, 3, size, size) with ImageNet's mean and deviation. ``storage_options`` go to the tars' store, ``settings``
    are arguments of :class:`Pipeline`.
    """
    if name not in _PRESETS:
        raise SpecError(f"no preset is named {name!r}; known: {', '.join(_PRESETS)}")
    steps, defaults = _PRESETS[name]
    chain = steps(size, fast=fast)
    if normalize:
        chain[3:3] = [ops.Normalize("image", mean=_MEAN, std=_STD), ops.ToLayout("image", "NCHW")]
    return Pipeline(_as_source(source, storage_options), tuple(chain), **{**defaults, **settings})


def _as_source(source: Source | str | Sequence[str], storage_options: dict[str, str] | None) -> Source:
    if isinstance(source, str):
        return tar(source, storage_options=storage_options)
    if isinstance(source, Sequence):
        return tar(*source, storage_options=storage_options)
    if storage_options is not None:
        raise SpecError("storage_options belong to the source that is given: stoker.tar(url, storage_options=…)")
    return source
