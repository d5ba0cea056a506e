"""Where an epoch ends: counts, steps and filler (pains 1, 3, 4, 6, 70)."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import ops
from stoker.errors import SpecError
from stoker.testing import keys_of
from support.loading import batches_of, load, numbered
from support.shards import make_shards

BARRIER_S = 5.0


def outside_the_last_shard(sample: dict[str, Any]) -> bool:
    """The shards hold 7, 11 and 2 samples, numbered through in ``txt``."""
    return int(bytes(sample["txt"]).split()[1]) < 18


def three_shards(folder: Path, **settings: Any) -> stoker.Pipeline:
    make_shards(folder, (7, 11, 2), images=False)
    steps = settings.pop("ops", [ops.Label("cls")])
    return stoker.Pipeline(stoker.tar(f"{folder}/shard-*.tar"), steps, batch_size=4, shuffle=True, **settings)


def in_step(pipeline: stoker.Pipeline, world_size: int) -> list[list[dict[str, Any]]]:
    """The batches of each rank, with a barrier after each step as a collective would be one."""
    barrier = threading.Barrier(world_size, timeout=BARRIER_S)

    def train(rank: int) -> list[dict[str, Any]]:
        found = []
        with load(pipeline, rank, world_size) as loader:
            for batch in loader:
                barrier.wait()
                found.append(batch)
            assert len(found) == len(loader)
        return found

    with ThreadPoolExecutor(world_size) as ranks:
        return list(ranks.map(train, range(world_size)))


@pytest.mark.parametrize("on_false", ["drop", "replace"])
@pytest.mark.parametrize("tail, num_steps", [("drop", 2), ("pad", 3), ("repeat", 3)])
def test_all_ranks_end_at_the_same_step(tmp_path: Path, tail: Any, num_steps: int, on_false: Any) -> None:
    """Pain 1: ranks end at the same step, known beforehand, whatever the tail policy and whatever a filter takes."""
    chain = [ops.Filter(outside_the_last_shard, on_false=on_false), ops.Label("cls")]
    ranks = in_step(three_shards(tmp_path, tail=tail, ops=chain), 2)
    assert [len(batches) for batches in ranks] == [num_steps, num_steps]
    sizes = {len(batch["__key__"]) for batches in ranks for batch in batches}
    assert sizes == {4} if on_false == "replace" else sizes <= {2, 3, 4}
    found = Counter(keys_of(batch for batches in ranks for batch in batches))
    assert not [key for key in found if key.startswith("s02")]
    if tail == "pad":
        assert sorted(found.elements()) == sorted(
            [f"s00-{row:04d}" for row in range(7)] + [f"s01-{row:04d}" for row in range(11)]
        )


def test_a_tail_that_would_leave_ranks_unequal_is_refused(tmp_path: Path) -> None:
    """Pain 1: a short last batch, which only some ranks could get, is refused before the first step."""
    with pytest.raises(SpecError, match='use "pad"'):
        load(three_shards(tmp_path, tail="short"), 0, 2)


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("num_threads", [1, 3, 10])
@pytest.mark.parametrize("lanes", [1, 3, 10])
def test_batches_are_cut_from_the_whole(tmp_path: Path, num_threads: int, lanes: int, drop_last: bool) -> None:
    """Pain 3: how many batches there are, and how many samples are dropped, depends on sizes and ranks only."""
    source = stoker.tar(numbered(tmp_path / "a.tar", 100), chunk_bytes=8192)
    pipeline = stoker.Pipeline(
        source, [ops.Label("cls")], batch_size=32, shuffle=True, lanes=lanes, drop_last=drop_last
    )
    sizes = [len(batch["cls"]) for batch in batches_of(pipeline, num_threads=num_threads)]
    assert sizes == ([32, 32, 32] if drop_last else [32, 32, 32, 4])


@pytest.mark.parametrize("num_threads", [1, 4])
def test_each_id_comes_once(tmp_path: Path, num_threads: int) -> None:
    """Pain 4: a sample is made once per epoch however many threads work, and the counters show it."""
    source = stoker.tar(numbered(tmp_path / "a.tar", 150), numbered(tmp_path / "b.tar", 51, first=150))
    with load(
        stoker.Pipeline(source, [ops.Label("cls")], batch_size=8, shuffle=True), num_threads=num_threads
    ) as loader:
        labels = np.concatenate([batch["cls"] for batch in loader])
        assert loader.stats()["samples"] == 201
    assert sorted(labels.tolist()) == list(range(201))


def test_evaluation_counts_each_sample_once(tmp_path: Path) -> None:
    """Pain 6: filler that makes ranks equal is masked, so a mean over unmasked rows is the exact one."""
    pipeline = stoker.Pipeline(stoker.tar(numbered(tmp_path / "a.tar", 21)), [ops.Label("cls")], batch_size=4)
    ranks = in_step(pipeline, 2)
    assert [[len(batch["cls"]) for batch in batches] for batches in ranks] == [[4, 4, 4], [4, 4, 4]]
    batches = [batch for rank in ranks for batch in rank]
    assert all(batch["__mask__"].dtype == np.bool_ for batch in batches)
    labels = np.concatenate([batch["cls"][batch["__mask__"]] for batch in batches])
    assert sorted(labels.tolist()) == list(range(21))
    assert labels.mean() == 10.0


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("tail", ["drop", "pad", "repeat", None])
@pytest.mark.parametrize("filtered", [False, True])
def test_len_is_this_ranks_number_of_batches(tmp_path: Path, world_size: int, tail: Any, filtered: bool) -> None:
    """Pain 70: ``len`` is the number of batches that this rank gets, with filters too, before and while it iterates."""
    chain = [*([ops.Filter(outside_the_last_shard)] if filtered else []), ops.Label("cls")]
    pipeline = three_shards(tmp_path, tail=tail, ops=chain)
    for rank in range(world_size):
        with load(pipeline, rank, world_size) as loader:
            before = len(loader)
            lengths = [len(loader) for _ in loader]
        assert lengths == [before] * before


def test_len_of_nothing_is_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Pain 70: where a tail policy leaves no batch, ``len`` is 0, iterating ends at once, and a warning says so."""
    with load(three_shards(tmp_path, tail="drop"), 0, 6) as loader:
        assert len(loader) == 0
        assert list(loader) == []
    assert "an epoch has no batch" in caplog.text
