"""Streams of batches, from a service or not, to be compared to the last byte."""

from __future__ import annotations

import functools
import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import stoker
from stoker import ops
from support.loading import load, tar_of
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


def make_noise(path: Path) -> str:
    """Write the shard of :func:`noise`: as many samples as :func:`pictures` has, of 64 KiB each."""
    random = np.random.default_rng(0)

    def npy() -> bytes:
        out = io.BytesIO()
        np.save(out, random.integers(0, 256, (256, 256), np.uint8))
        return out.getvalue()

    return tar_of(path, ((f"{number:05d}", {"npy": npy()}) for number in range(sum(ROWS))))


def noise(shard: str, **settings: Any) -> stoker.Pipeline:
    """Arrays that are large beside pictures, and of which no byte is like its neighbour."""
    source = stoker.tar(shard, chunk_bytes=128 << 10)
    steps = [ops.DecodeNumpy("npy", to="array")]
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


SMALL_PREFETCH_BYTES = 64 << 10
"""So little that what happens to the workers in mid-epoch happens to the stream."""


def assert_undisturbed(
    service: str, pipeline: stoker.Pipeline, num_steps: int, events: Mapping[int, Callable[[], object]]
) -> dict[str, Any]:
    """Consume a service's stream while something happens after some steps; it must be local mode's.

    Returns the loader's statistics.
    """
    found: list[str] = []
    with load(pipeline, service=service, prefetch_bytes=SMALL_PREFETCH_BYTES) as loader:
        for step, batch in enumerate(batches_on(loader, num_steps)):
            found.append(digest(batch))
            events.get(step, int)()
        stats = loader.stats()
    assert_same_stream(found, local_stream(pipeline.to_json(), num_steps))
    return stats
