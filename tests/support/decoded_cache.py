"""Pipelines over small pictures, with and without a decoded cache, and their batches."""

from __future__ import annotations

from typing import Any

import stoker
from stoker import ops
from support.loading import load

ROWS = (7, 11, 2, 30, 1, 9)
NUM_SAMPLES = sum(ROWS)

DECODE = (ops.DecodeImage("jpg", to="image"),)
RESIZE = (*DECODE, ops.Resize("image", 40), ops.Label("cls"))
CROP = (ops.RandomResizedCrop("image", 24), ops.RandomHorizontalFlip("image"))


def pipeline(shards: str, *steps: Any, **settings: Any) -> stoker.Pipeline:
    source = stoker.tar(shards, chunk_bytes=8192)
    return stoker.Pipeline(source, steps, **{"batch_size": 4, "shuffle": True, "window": 3, **settings})


def epochs(under_test: stoker.Pipeline, count: int = 3, **options: Any) -> list[dict[str, Any]]:
    """The batches of some epochs; what was complete is written before the loader closes."""
    with load(under_test, **options) as loader:
        found = [batch for _ in range(count) for batch in loader]
        flush(loader)
        return found


def flush(loader: stoker.DataLoader) -> None:
    """Wait for what is written in the background: stands for the time that a training step takes."""
    prepared = getattr(loader._supply, "_prepared", None)
    if prepared is not None:
        prepared.flush(30.0)
