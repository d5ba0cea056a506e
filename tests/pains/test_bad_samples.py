"""Bad samples follow a policy and end nothing that they need not end (pain 35), on each back-end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import ops
from stoker.errors import DataError, SampleError, TooManyBadSamplesError
from stoker.testing import assert_equal_batches, keys_of
from support import pictures
from support.loading import batches_of, load, tar_of
from support.shards import make_broken_shard, samples

pytestmark = pytest.mark.usefixtures("backend")

NUM_GOOD = 195


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, set[str]]:
    """200 pictures, five of them broken, and the keys of these; one of the good is a PNG that is named .jpg."""
    path = tmp_path_factory.mktemp("broken") / "a.tar"
    return str(path), set(make_broken_shard(path, NUM_GOOD))


def over(shard: tuple[str, set[str]], **settings: Any) -> stoker.Pipeline:
    steps = [ops.DecodeImage("jpg", to="image"), ops.RandomResizedCrop("image", 16), ops.Label("cls")]
    source = stoker.tar(shard[0], chunk_bytes=16384)
    return stoker.Pipeline(source, steps, **{"batch_size": 20, "shuffle": True, **settings})


def test_raise_names_the_sample(shard: tuple[str, set[str]]) -> None:
    """Pain 35: under "raise" the error names URL, row, key and op, and the batches before it were handed out."""
    pipeline = over(shard, shuffle=False, lanes=1, batch_size=1)
    with load(pipeline) as loader:
        batches = iter(loader)
        assert next(batches)["__key__"] == ["s00-0000"]
        with pytest.raises(
            SampleError, match=r"a\.tar row 1 \(key 'broken-cut-at-half'\): DecodeImage\('jpg'\)"
        ) as got:
            next(batches)
    assert got.value.origin is not None
    assert (got.value.origin.row, got.value.origin.key) == (1, "broken-cut-at-half")


def test_after_an_error_the_state_is_that_of_the_last_batch(shard: tuple[str, set[str]]) -> None:
    """Pain 35: a bad sample does not move the position: going on from the state meets the same sample again."""
    with load(over(shard, shuffle=False, lanes=1, batch_size=1)) as loader:
        for _ in range(2):
            batches = iter(loader)
            with pytest.raises(SampleError, match="broken-cut-at-half"):
                list(batches)
            state = loader.state_dict()
            assert state["position"]["num_consumed"] == 1
            loader.load_state_dict(state)
        loader.skip(1)
        assert next(iter(loader))["__key__"] == ["s00-0001"]


def test_replace_keeps_batches_whole(shard: tuple[str, set[str]]) -> None:
    """Pain 35: under "replace" sizes stay, broken rows show a good sample of their batch and are masked."""
    with load(over(shard, on_error="replace")) as loader:
        batches = list(loader)
        assert loader.stats()["bad_samples"] == 5
    assert [len(batch["__key__"]) for batch in batches] == [20] * 10
    assert [len(batch["image"]) for batch in batches] == [20] * 10
    found = keys_of(batches)
    assert len(found) == len(set(found)) == NUM_GOOD
    assert not shard[1] & {key for batch in batches for key in batch["__key__"]}
    for batch in batches:
        own = {key: row for row, key in enumerate(batch["__key__"]) if batch["__mask__"][row]}
        for row in np.flatnonzero(~batch["__mask__"]):
            donor = own[batch["__key__"][row]]
            np.testing.assert_array_equal(batch["image"][row], batch["image"][donor])
            assert batch["cls"][row] == batch["cls"][donor]


def test_drop_keeps_the_steps(shard: tuple[str, set[str]]) -> None:
    """Pain 35: under "drop" only the broken samples are missing, and the number of steps stays."""
    with load(over(shard, on_error="drop")) as loader:
        batches = list(loader)
        assert len(batches) == len(loader) == 10
        assert loader.stats()["bad_samples"] == 5
    found = keys_of(batches)
    assert len(found) == len(set(found)) == NUM_GOOD
    assert not shard[1] & set(found)
    assert all(len(batch["image"]) == len(batch["__key__"]) <= 20 for batch in batches)


@pytest.mark.parametrize("on_error", ["replace", "drop"])
def test_policies_are_deterministic(shard: tuple[str, set[str]], on_error: Any) -> None:
    """Pain 35: what replaces a broken sample depends on neither threads nor where an epoch was resumed."""
    pipeline = over(shard, on_error=on_error)
    expected = batches_of(pipeline, num_threads=1)
    assert_equal_batches(batches_of(pipeline, num_threads=5), expected)
    with load(pipeline) as loader:
        loader.skip(4)
        assert_equal_batches(list(loader), expected[4:])


@pytest.mark.parametrize("on_error", ["replace", "drop"])
def test_a_batch_without_a_good_sample_keeps_its_step(shard: tuple[str, set[str]], on_error: Any) -> None:
    """Pain 35: a batch whose samples are all broken is a masked or an empty one, even the first, never an error."""
    pipeline = over(shard, on_error=on_error, shuffle=False, lanes=1, batch_size=1)
    expected = batches_of(pipeline)
    assert len(expected) == 200
    masked = expected[1]
    assert masked["image"].shape == ((1, 16, 16, 3) if on_error == "replace" else (0, 16, 16, 3))
    if on_error == "replace":
        assert not masked["__mask__"].any()
    with load(pipeline) as loader:
        loader.skip(1)
        assert_equal_batches(list(loader), expected[1:])


def test_no_good_sample_at_all_is_an_error(tmp_path: Path) -> None:
    """Pain 35: a data set of broken samples alone ends with an error that shows their reasons."""
    broken = [(f"b{index}", {"cls": b"0", "jpg": bytes(9)}) for index in range(5)]
    path = tar_of(tmp_path / "a.tar", broken)
    with pytest.raises(DataError, match="DecodeImage"):
        batches_of(over((path, set()), on_error="replace", batch_size=2))


@pytest.mark.parametrize("max_bad, passes", [(5, True), (4, False), (0, False), (0.03, True), (0.02, False)])
def test_max_bad_is_a_limit(shard: tuple[str, set[str]], max_bad: float, passes: bool) -> None:
    """Pain 35: more bad samples than ``max_bad``, a count or a fraction, end the epoch with the latest reasons."""
    pipeline = over(shard, on_error="replace", max_bad=max_bad)
    if passes:
        assert len(batches_of(pipeline)) == 10
        return
    with load(pipeline) as loader:
        with pytest.raises(TooManyBadSamplesError, match=rf"max_bad={max_bad}.*broken-"):
            list(loader)
        consumed = loader.state_dict()["position"]["num_consumed"]
        loader.load_state_dict(loader.state_dict())
        assert loader.state_dict()["position"]["num_consumed"] == consumed < 10


def test_the_quarantine_lists_each_bad_sample_once(shard: tuple[str, set[str]], tmp_path: Path) -> None:
    """Pain 35: the quarantine file names URL, row, key, op and reason of each bad sample, once over all epochs."""
    path = tmp_path / "bad" / "list.jsonl"
    with load(over(shard, on_error="drop"), quarantine=path) as loader:
        for _ in range(2):
            list(loader)
    listed = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert {entry["key"] for entry in listed} == shard[1]
    assert sorted(entry["row"] for entry in listed) == [1, 4, 7, 10, 13]
    assert {entry["url"].removeprefix("file://") for entry in listed} == {shard[0]}
    assert all(entry["reason"] and entry["op"] == "DecodeImage('jpg')" for entry in listed)


def test_a_broken_picture_is_broken_whatever_the_crop(tmp_path: Path) -> None:
    """Pain 35: a picture cut at half is bad in every epoch, also where the crop lies in the half that is there."""
    cut = pictures.broken()["cut-at-half.jpg"]
    (shard,) = samples([3])
    path = tar_of(tmp_path / "a.tar", [*shard, ("cut", {"cls": b"0", "jpg": cut})])
    with load(over((path, {"cut"}), on_error="drop", batch_size=4)) as loader:
        for _ in range(8):
            assert "cut" not in keys_of(loader)
