"""Streams of batches, from a service or not, to be compared to the last byte."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import stoker
from stoker import ops
from support.loading import load
from support.shards import make_shards

ROWS = (40, 61, 9, 75, 30, 25)
"""Rows of the shards that :func:`pictures` takes: 240 samples."""


def make_pictures(folder: Path) -> str:
    """Write the shards of :func:`pictures`, and return what names them."""
    make_shards(folder, ROWS)
    return f"{folder}/shard-*.tar"


def pictures(shards: str, *more: Any, **settings: Any) -> stoker.Pipeline:
    """Random crops of small pictures in small chunks, so that windows, lanes and draws all have something to do.

    Not anti-aliased: no worker needs torch, whose import takes longer than a test.
    """
    steps = [
        ops.DecodeImage("jpg", to="image"),
        ops.RandomResizedCrop("image", 24, antialias=False),
        ops.RandomHorizontalFlip("image"),
        ops.Label("cls"),
        *more,
    ]
    source = stoker.tar(shards, chunk_bytes=8192)
    return stoker.Pipeline(source, steps, **{"batch_size": 4, "shuffle": True, "window": 3, **settings})


def digest(batch: dict[str, Any]) -> str:
    """What a batch of NumPy columns is, to the last byte."""
    found = hashlib.blake2b(digest_size=12)
    for name in sorted(batch):
        column = batch[name]
        if isinstance(column, list):
            found.update(f"{name} {column!r}".encode())
        else:
            array = np.ascontiguousarray(column)
            found.update(f"{name} {array.dtype} {array.shape}".encode())
            found.update(array.tobytes())
    return found.hexdigest()


def digests(batches: Iterable[dict[str, Any]]) -> list[str]:
    return [digest(batch) for batch in batches]


def batches_on(loader: stoker.DataLoader, num_steps: int) -> Iterator[dict[str, Any]]:
    """So many batches from where the loader is, over the epochs."""
    left = num_steps
    while left:
        before = left
        for batch in loader:
            yield batch
            left -= 1
            if not left:
                return
        assert left < before, "an epoch without a batch"


@functools.cache
def local_stream(pipeline: str, num_steps: int, rank: int = 0, world_size: int = 1) -> tuple[str, ...]:
    """The digests of the first steps of a pipeline, given as JSON, in local mode."""
    with load(stoker.Pipeline.from_json(pipeline), rank, world_size, num_threads=1) as loader:
        return tuple(digests(batches_on(loader, num_steps)))


def assert_same_stream(found: Iterable[str], expected: Iterable[str]) -> None:
    """Two streams of digests are equal; otherwise say where they part and how: lost, twice, swapped or other bytes."""
    one, other = list(found), list(expected)
    if one == other:
        return
    parts = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    places = [other.index(item) if item in other else "unknown" for item in one[parts : parts + 12]]
    lost = [index for index, item in enumerate(other) if item not in one]
    twice = [other.index(item) for item in sorted(set(one)) if one.count(item) > 1 and item in other]
    raise AssertionError(
        f"streams part at step {parts} of {len(other)} (found {len(one)}): there come {places}; lost: {lost[:20]}; "
        f"twice: {twice[:20]}"
    )
