"""Stoker: an input pipeline for deep-learning training.

Shards in object storage in, ready batches out; what is in a batch depends on the data, the seed, the epoch and the
position alone. See :class:`Pipeline` for what to load and :class:`DataLoader` for how to iterate it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker import errors, ops
    from stoker.backends.options import Backend
    from stoker.dataloader import DataLoader
    from stoker.formats.source import files, parquet, tar
    from stoker.pipeline import Pipeline
    from stoker.storage.cache import CacheOptions

__all__ = [
    "Backend",
    "CacheOptions",
    "DataLoader",
    "Pipeline",
    "__version__",
    "errors",
    "files",
    "ops",
    "parquet",
    "tar",
]

_HOME = {
    "Backend": "stoker.backends.options",
    "CacheOptions": "stoker.storage.cache",
    "DataLoader": "stoker.dataloader",
    "Pipeline": "stoker.pipeline",
    "files": "stoker.formats.source",
    "parquet": "stoker.formats.source",
    "tar": "stoker.formats.source",
}
_MODULES = ("errors", "ops")


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``import stoker`` stays light."""
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"stoker.{name}")
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("stoker")
    raise AttributeError(f"module 'stoker' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
