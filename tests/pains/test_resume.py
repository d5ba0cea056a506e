"""Going on inside an epoch (pains 10, 11, 12, 15, 16)."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker import ops
from stoker.errors import StateError
from stoker.testing import keys_of
from support import programs
from support.faulty_http import run_faulty_http
from support.loading import load, numbered
from support.shards import tar_bytes


def over(*urls: str, **settings: Any) -> stoker.Pipeline:
    source = stoker.tar(*urls, **settings.pop("source", {"chunk_bytes": 8192}))
    return stoker.Pipeline(source, [ops.Label("cls")], **{"batch_size": 10, "shuffle": True, **settings})


def rest_of(pipeline: stoker.Pipeline, state: dict[str, Any], rank: int = 0, world_size: int = 1) -> list[str]:
    with load(pipeline, rank, world_size) as loader:
        loader.load_state_dict(state)
        return keys_of(loader)


def after(num_batches: int, pipeline: stoker.Pipeline) -> tuple[list[str], dict[str, Any]]:
    """The keys of the first batches, and the state behind them."""
    with load(pipeline) as loader:
        keys = keys_of(batch for _, batch in zip(range(num_batches), loader, strict=False))
        return keys, loader.state_dict()


def test_a_killed_trainer_goes_on_at_the_next_batch(tmp_path: Path) -> None:
    """Pain 10: a state saved while more batches are prefetched continues at the next batch that was not handed out."""
    shard = numbered(tmp_path / "a.tar", 1000)
    ended = programs.run("consume_save_and_die", shard, str(tmp_path / "saved.json"), "37")
    assert ended.returncode == -9, ended.stderr
    saved = json.loads((tmp_path / "saved.json").read_text())
    assert len(saved["keys"]) == 370
    with load(over(shard)) as loader:
        assert saved["keys"] + rest_of(over(shard), saved["state"]) == keys_of(loader)


def test_the_rest_is_dealt_to_two_ranks(tmp_path: Path) -> None:
    """Pain 11: after one step of one rank, two ranks get exactly the ids that are left."""
    shard = numbered(tmp_path / "a.tar", 16)
    pipeline = over(shard, batch_size=4, shuffle=False)
    seen, state = after(1, pipeline)
    assert seen == ["00000", "00001", "00002", "00003"]
    for batch_size in (4, 2):  # 2: the same global batch
        resumed = over(shard, batch_size=batch_size, shuffle=False)
        found = [key for rank in range(2) for key in rest_of(resumed, state, rank, 2)]
        assert sorted(found) == [f"{number:05d}" for number in range(4, 16)]


@pytest.mark.parametrize("worlds", [(1, 2, 3), (3, 1, 2), (4, 2, 4)])
def test_ranks_may_change_again_and_again(tmp_path: Path, worlds: tuple[int, ...]) -> None:
    """Pain 11: over any chain of world sizes, each id is read once."""
    shard = numbered(tmp_path / "a.tar", 100)
    found: list[str] = []
    state: dict[str, Any] | None = None
    for index, world_size in enumerate(worlds):
        steps = 2 if index + 1 < len(worlds) else 1000
        states = []
        for rank in range(world_size):
            with load(over(shard, batch_size=3, tail="pad"), rank, world_size) as loader:
                if state is not None:
                    loader.load_state_dict(state)
                found += keys_of(batch for _, batch in zip(range(steps), loader, strict=False))
                states.append(loader.state_dict())
        assert all(other == states[0] for other in states)
        state = states[0]
    assert sorted(found) == [f"{number:05d}" for number in range(100)]


@pytest.fixture(scope="module")
def ten_thousand() -> dict[str, bytes]:
    """Ten shards of a thousand samples, 1 KiB each."""
    return {
        f"shard-{shard}.tar": tar_bytes(
            (f"{shard * 1000 + row:05d}", {"cls": str(shard * 1000 + row).encode()}) for row in range(1000)
        )
        for shard in range(10)
    }


@pytest.mark.parametrize("shuffle", [False, True])
def test_nothing_before_the_position_is_fetched(ten_thousand: dict[str, bytes], tmp_path: Path, shuffle: bool) -> None:
    """Pain 12: resuming at 9,000 of 10,000 fetches less than two shards, by the loader's count and the server's."""
    shard_bytes = len(ten_thousand["shard-0.tar"])
    with run_faulty_http(ten_thousand) as server:
        source = {"chunk_bytes": 16384, "manifest": str(tmp_path / "index.parquet")}
        urls = f"{server.url}/shard-{{0..9}}.tar"
        pipeline = over(urls, source=source, shuffle=shuffle, window=4, batch_size=100, lanes=8 if shuffle else 1)
        with load(pipeline) as loader:
            loader.skip(90)
            state = loader.state_dict()
        server.requests.clear()
        with load(pipeline, read_bytes=1, prefetch_bytes=1) as loader:
            loader.load_state_dict(state)
            rest = iter(loader)
            keys = keys_of([next(rest)])
            asked = [(path, wanted) for method, path, wanted in server.requests if method == "GET"]
            keys += keys_of(rest)
            assert loader.stats()["bytes_read"] < 2 * shard_bytes
    assert len(set(keys)) == len(keys) == 1000
    fetched = sum(_length(wanted) for method, _, wanted in server.requests if method == "GET")
    assert 1_000_000 < fetched < 2 * shard_bytes
    if not shuffle:
        assert keys == [f"{number:05d}" for number in range(9000, 10_000)]
        assert {path for path, _ in asked} == {"/shard-9.tar"}


def _length(wanted: str) -> int:
    asked = re.fullmatch(r"bytes=(\d+)-(\d+)", wanted)
    assert asked is not None, f"a request without a range: {wanted!r}"
    return int(asked.group(2)) - int(asked.group(1)) + 1


def test_a_state_costs_the_same_at_every_step(tmp_path: Path) -> None:
    """Pain 15: a state is small and takes the same few calls, and no I/O, however many batches went before."""
    costs, sizes = [], []
    with load(over(numbered(tmp_path / "a.tar", 1000), batch_size=1)) as loader:
        for _ in loader:
            num_calls, state = _calls_of(loader.state_dict)
            costs.append(num_calls)
            sizes.append(len(json.dumps(state)))
    assert len(costs) == 1000
    assert len(set(costs)) == 1
    assert costs[0] < 150
    assert max(sizes) - min(sizes) <= 3  # a number's digits
    assert max(sizes) < 4096


def _calls_of(function: Callable[[], dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    """How many calls, in Python and C, a function makes in this thread; none of them may open or wait."""
    called: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            called.append(frame.f_code.co_name)
        elif event == "c_call":
            called.append(argument.__name__)

    sys.setprofile(note)
    try:
        result = function()
    finally:
        sys.setprofile(None)
    assert not {"open", "read", "write", "wait", "acquire", "sleep", "stat"} & set(called)
    return len(called), result


def test_a_state_fits_after_the_data_moved(tmp_path: Path) -> None:
    """Pain 16: a state identifies its data by content, so a moved folder goes on where it was."""
    pipeline = over(numbered(tmp_path / "old" / "a.tar", 100))
    seen, state = after(3, pipeline)
    with load(pipeline) as loader:
        whole = keys_of(loader)
    shutil.move(tmp_path / "old", tmp_path / "new" / "deeper")
    assert seen + rest_of(over(f"{tmp_path}/new/deeper/a.tar"), state) == whole


def test_a_state_of_other_data_says_what_differs(tmp_path: Path) -> None:
    """Pain 16: with a source added, a state is refused with what differs, and goes on when told to."""
    first = numbered(tmp_path / "a.tar", 100)
    _, state = after(3, over(first))
    both = over(first, numbered(tmp_path / "b.tar", 50, first=100))
    with load(both) as loader:
        with pytest.raises(StateError, match=r"num_samples was 100, is 150.*allow_changes=True"):
            loader.load_state_dict(state)
        loader.load_state_dict(state, allow_changes=True)
        assert len(keys_of(loader)) == 120
    with load(over(first, seed=1)) as loader, pytest.raises(StateError, match="seed was 0, is 1"):
        loader.load_state_dict(state)


def test_fifty_batches_are_skipped(tmp_path: Path) -> None:
    """Pain 16: ``skip`` leaves out exactly the next batches, and its state is the one behind them."""
    pipeline = over(numbered(tmp_path / "a.tar", 1000))
    with load(pipeline) as loader:
        whole = keys_of(loader)
    seen, state = after(7, pipeline)
    with load(pipeline) as loader:
        loader.load_state_dict(state)
        loader.skip(50)
        assert loader.state_dict() == after(57, pipeline)[1]
        assert seen + keys_of(loader) == whole[:70] + whole[570:]
        assert len(keys_of(loader)) == 1000
