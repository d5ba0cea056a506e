"""Order and chance: which sample comes when, and what is drawn for it (pains 8, 17, 18)."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

import stoker
from stoker import ops
from stoker.testing import assert_equal_batches, keys_of
from support.loading import batches_of, load
from support.shards import make_shards

NUM_CLASSES = 8


@pytest.fixture(scope="module")
def sorted_shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    """16 shards of 64 samples, sorted by class: each shard holds half of one class."""
    folder = tmp_path_factory.mktemp("sorted")
    make_shards(folder, (64,) * 16, num_classes=NUM_CLASSES, by_class=True, images=False)
    return f"{folder}/shard-*.tar"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("pictures")
    make_shards(folder, (20, 20))
    return f"{folder}/shard-*.tar"


def over(shards: str, *steps: Any, **settings: Any) -> stoker.Pipeline:
    source = stoker.tar(shards, chunk_bytes=4096)
    return stoker.Pipeline(source, [*steps, ops.Label("cls")], **{"batch_size": 64, "shuffle": True, **settings})


def test_ranks_see_other_samples_in_each_epoch(sorted_shards: str) -> None:
    """Pain 8: the order is mixed over the whole data set before it is dealt, so a rank's share changes each epoch."""
    shares: list[list[set[str]]] = []
    for rank in range(4):
        with load(over(sorted_shards), rank, 4) as loader:
            shares.append([set(keys_of(loader)) for _ in range(3)])
    for of_rank in shares:
        for epoch, share in enumerate(of_rank):
            assert len(share) == 256
            shards = {key.partition("-")[0] for key in share}
            assert len(shards) == 16
            others = [other for index, other in enumerate(of_rank) if index != epoch]
            assert all(len(share & other) < 128 for other in others)  # by chance a quarter: 64


def test_class_sorted_shards_give_mixed_batches(sorted_shards: str) -> None:
    """Pain 8: on class-sorted shards, the classes of each batch are near those of the whole data set."""
    with load(over(sorted_shards)) as loader:
        for _ in range(3):
            shares = [max(Counter(batch["cls"].tolist()).values()) / 64 for batch in loader]
            assert max(shares) < 0.45  # a batch of one shard would have 1.0; the data set has 0.125
            assert np.mean(shares) < 0.3  # 64 independent draws have 0.21


def test_a_long_lived_loader_changes_order_and_windows(pictures: str) -> None:
    """Pain 17: the epoch reaches the threads that live on: order and augmentation differ, and a re-run is equal."""
    pipeline = over(pictures, ops.DecodeImage("jpg", to="image"), ops.RandomResizedCrop("image", 16), batch_size=10)
    with load(pipeline) as loader:
        epochs = [list(loader) for _ in range(3)]
    assert len({tuple(keys_of(epoch)) for epoch in epochs}) == 3
    first, second = (
        {key: image.tobytes() for batch in epoch for key, image in zip(batch["__key__"], batch["image"], strict=True)}
        for epoch in epochs[:2]
    )
    assert sum(first[key] == second[key] for key in first) == 0
    with load(pipeline) as loader:
        for epoch in (2, 0, 1):
            loader.set_epoch(epoch)
            assert_equal_batches(list(loader), epochs[epoch])


def with_numpy(sample: dict[str, Any]) -> dict[str, Any]:
    return {"drawn": np.random.randint(0, 2**62)}  # noqa: NPY002  # users' code does this


def with_python(sample: dict[str, Any]) -> dict[str, Any]:
    return {"drawn": random.getrandbits(62)}


def with_torch(sample: dict[str, Any]) -> dict[str, Any]:
    return {"drawn": int(torch.randint(0, 2**62, ()))}


def with_argument(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"drawn": int(rng.integers(0, 2**62))}


@pytest.mark.parametrize("draw", [with_numpy, with_python, with_torch, with_argument])
def test_users_chance_is_new_for_each_sample_and_epoch(sorted_shards: str, draw: Any) -> None:
    """Pain 18: what a user's function draws differs for each sample and epoch, and is the same for any threads."""
    source = stoker.tar(sorted_shards.replace("*", "0000"))
    pipeline = stoker.Pipeline(source, [ops.Map(draw)], batch_size=16, shuffle=True)
    runs = []
    for num_threads in (4, 1, 7):
        with load(pipeline, num_threads=num_threads) as loader:
            runs.append([batch["drawn"].tolist() for _ in range(2) for batch in loader])
    values = [value for batch in runs[0] for value in batch]
    assert len(values) == 128
    assert len(set(values)) == 128
    assert runs[0] == runs[1] == runs[2]


def test_two_random_ops_draw_apart(sorted_shards: str) -> None:
    """Pain 18: two functions of one sample draw different numbers, and another seed draws others again."""

    def first(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {"first": int(rng.integers(0, 2**62))}

    def second(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {**sample, "second": int(rng.integers(0, 2**62))}

    source = stoker.tar(sorted_shards.replace("*", "0000"))
    found: set[int] = set()
    for seed in (0, 1):
        pipeline = stoker.Pipeline(source, [ops.Map(first), ops.Map(second)], batch_size=16, seed=seed)
        for batch in batches_of(pipeline):
            found.update(batch["first"].tolist(), batch["second"].tolist())
    assert len(found) == 2 * 2 * 64
