"""Short ways to load small shards in a test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import stoker
from stoker import ops
from support.ops import BACKEND
from support.shards import write_tar


def load(pipeline: stoker.Pipeline, rank: int = 0, world_size: int = 1, **options: Any) -> stoker.DataLoader:
    """A loader of NumPy batches, whatever the environment says about ranks."""
    if BACKEND.get() != "cpu":  # a service has its own
        options = {"backend": BACKEND.get(), **options}
    return stoker.DataLoader(pipeline, rank=rank, world_size=world_size, **{"output": "numpy", **options})


def pictures(shards: str, *more: Any, **settings: Any) -> stoker.Pipeline:
    """A pipeline that crops and flips at random, over small chunks and windows."""
    steps = [
        ops.DecodeImage("jpg", to="image"),
        ops.RandomResizedCrop("image", 24),
        ops.RandomHorizontalFlip("image"),
        ops.Label("cls"),
        *more,
    ]
    source = stoker.tar(shards, chunk_bytes=8192)
    return stoker.Pipeline(source, steps, **{"batch_size": 4, "shuffle": True, "window": 3, **settings})


def batches_of(pipeline: stoker.Pipeline, rank: int = 0, world_size: int = 1, **options: Any) -> list[dict[str, Any]]:
    """All batches of the first epoch."""
    with load(pipeline, rank, world_size, **options) as loader:
        return list(loader)


def tar_of(path: Path, samples: Mapping[str, Mapping[str, bytes]] | Iterable[tuple[str, Mapping[str, bytes]]]) -> str:
    """Write one tar, sample by sample, and return its path."""
    pairs = samples.items() if isinstance(samples, Mapping) else samples
    return str(write_tar(path, pairs))


def numbered(path: Path, count: int, first: int = 0) -> str:
    """Write one tar of ``count`` samples whose key is their number in five digits, with it as label in ``cls``."""
    numbers = range(first, first + count)
    return tar_of(path, ((f"{number:05d}", {"cls": str(number).encode()}) for number in numbers))
