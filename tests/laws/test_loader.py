"""What must hold of every loader, on real files, whatever sizes, threads, ranks and delays."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stoker
from stoker import ops
from stoker.testing import assert_equal_batches, assert_exactly_once, assert_resumable, keys_of
from support.loading import pictures
from support.shards import make_shards

ROWS = (7, 11, 2, 30, 1, 9)
NUM_SAMPLES = sum(ROWS)
small = st.integers(1, 7)
slow_to_draw = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def text_shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("text")
    make_shards(folder, ROWS, images=False)
    return f"{folder}/shard-*.tar"


@pytest.fixture(scope="module")
def picture_shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("pictures")
    make_shards(folder, ROWS)
    return f"{folder}/shard-*.tar"


def all_keys() -> list[str]:
    return [f"s{shard:02d}-{row:04d}" for shard, count in enumerate(ROWS) for row in range(count)]


def texts(shards: str, **arguments: Any) -> stoker.Pipeline:
    """A pipeline over small chunks, so that windows and lanes have something to mix."""
    source = stoker.tar(shards, chunk_bytes=arguments.pop("chunk_bytes", 4096))
    return stoker.Pipeline(source, [ops.Label("cls")], **{"batch_size": 4, "shuffle": True, **arguments})


def load(pipeline: stoker.Pipeline, rank: int = 0, world_size: int = 1, **options: Any) -> stoker.DataLoader:
    return stoker.DataLoader(pipeline, rank=rank, world_size=world_size, output="numpy", **options)


def dawdle(sample: dict[str, Any]) -> dict[str, Any]:
    """Take a time that differs from call to call, so that threads overtake one another."""
    time.sleep(random.SystemRandom().uniform(0, 0.004))
    return sample


@slow_to_draw
@given(batch=small, lanes=small, world=small, window=small, seed=st.integers(0, 2**40), epoch=st.integers(0, 3))
def test_each_sample_exactly_once_in_equal_steps(
    text_shards: str, batch: int, lanes: int, world: int, window: int, seed: int, epoch: int
) -> None:
    pipeline = texts(text_shards, batch_size=batch, lanes=lanes, window=window, seed=seed)
    assert_exactly_once(lambda rank, size: load(pipeline, rank, size), world, all_keys(), epoch=epoch)


@pytest.mark.parametrize("shuffle", [False, True, "full"])
def test_each_sample_exactly_once_in_every_kind_of_order(text_shards: str, shuffle: Any) -> None:
    pipeline = texts(text_shards, shuffle=shuffle)
    assert_exactly_once(lambda rank, size: load(pipeline, rank, size), 3, all_keys())


def test_without_shuffle_the_keys_come_in_the_order_of_the_shards(text_shards: str) -> None:
    with load(texts(text_shards, shuffle=False, lanes=1)) as loader:
        assert keys_of(loader) == all_keys()


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_threads_and_delays_change_neither_ids_nor_pixels(picture_shards: str, num_threads: int) -> None:
    with load(pictures(picture_shards), num_threads=1) as loader:
        expected = list(loader)
    with load(pictures(picture_shards, ops.Map(dawdle)), num_threads=num_threads) as loader:
        assert_equal_batches(list(loader), expected)


def test_every_epoch_has_another_order_and_other_windows(picture_shards: str) -> None:
    with load(pictures(picture_shards)) as loader:
        epochs = [list(loader) for _ in range(3)]
    keys = [keys_of(epoch) for epoch in epochs]
    assert keys[0] != keys[1] != keys[2]
    images = [
        {key: image.tobytes() for batch in epoch for key, image in zip(batch["__key__"], batch["image"], strict=True)}
        for epoch in epochs
    ]
    assert sum(images[0][key] == images[1][key] for key in images[0]) < NUM_SAMPLES / 4


def test_a_resume_at_every_position_equals_the_rest(picture_shards: str) -> None:
    pipeline = pictures(picture_shards)
    assert_resumable(lambda rank, size: load(pipeline, rank, size), steps=range(-(-NUM_SAMPLES // 4) + 1), epoch=1)


@slow_to_draw
@given(before=st.tuples(small, small, small), after=st.tuples(small, small, small), data=st.data())
def test_a_resume_with_other_sizes_covers_exactly_the_rest(
    text_shards: str, before: tuple[int, int, int], after: tuple[int, int, int], data: st.DataObject
) -> None:
    found: list[str] = []
    state: dict[str, Any] | None = None
    step = data.draw(st.integers(0, 3), label="steps before")
    for (batch, lanes, world), limit in ((before, step), (after, None)):
        pipeline = texts(text_shards, batch_size=batch, lanes=lanes, tail="pad")
        states = []
        for rank in range(world):
            with load(pipeline, rank, world) as loader:
                if state is not None:
                    loader.load_state_dict(state)
                loader.set_epoch(0)
                batches = loader if limit is None else (batch for _, batch in zip(range(limit), loader, strict=False))
                found += keys_of(batches)
                states.append(json.dumps(loader.state_dict()))
        assert len(set(states)) == 1
        assert len(states[0]) < 4096
        state = json.loads(states[0])
    assert sorted(found) == sorted(all_keys())


@slow_to_draw
@given(batch=st.integers(1, 70), world=small, tail=st.sampled_from(["drop", "pad", "repeat"]))
def test_len_is_what_iterating_gives(text_shards: str, batch: int, world: int, tail: Any) -> None:
    for rank in range(world):
        with load(texts(text_shards, batch_size=batch, tail=tail), rank, world) as loader:
            assert len(loader) == sum(1 for _ in loader)


def test_iterating_again_goes_on_to_the_next_epoch(text_shards: str) -> None:
    with load(texts(text_shards)) as loader:
        runs = [keys_of(loader) for _ in range(2)]
        loader.set_epoch(1)
        again = keys_of(loader)
    assert runs[0] != runs[1] == again


def test_a_broken_off_epoch_is_left_behind(text_shards: str) -> None:
    with load(texts(text_shards)) as loader:
        next(iter(loader))
        second = keys_of(loader)
        loader.set_epoch(1)
        assert keys_of(loader) == second


def test_an_epoch_that_was_consumed_whole_resumes_with_the_next(text_shards: str) -> None:
    with load(texts(text_shards)) as loader:
        list(loader)
        state = loader.state_dict()
        expected = keys_of(loader)
    with load(texts(text_shards)) as loader:
        loader.load_state_dict(state)
        assert keys_of(loader) == expected
    with load(texts(text_shards)) as loader:
        loader.load_state_dict(state)
        loader.set_epoch(0)
        assert keys_of(loader) == []
        assert keys_of(loader) == expected


def test_the_batch_memory_is_the_users(picture_shards: str) -> None:
    """A batch that is kept, or written to, is not changed by those made after it."""
    with load(pictures(picture_shards)) as loader:
        kept = list(loader)
        copies = [{name: np.array(column) for name, column in batch.items()} for batch in kept]
        for batch in loader:
            batch["image"][:] = 0
        for batch, copy in zip(kept, copies, strict=True):
            np.testing.assert_array_equal(batch["image"], copy["image"])


def test_a_path_that_moved_changes_nothing(text_shards: str, tmp_path: Path) -> None:
    with load(texts(text_shards)) as loader:
        next(iter(loader))
        state = loader.state_dict()
        rest = keys_of(_rest(loader, state))
    make_shards(tmp_path / "elsewhere", ROWS, images=False)
    with load(texts(f"{tmp_path}/elsewhere/shard-*.tar")) as loader:
        assert keys_of(_rest(loader, state)) == rest


def _rest(loader: stoker.DataLoader, state: dict[str, Any]) -> stoker.DataLoader:
    loader.load_state_dict(state)
    return loader
