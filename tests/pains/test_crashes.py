"""A crash in native code costs one record, not the training (pain 36)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker.errors import SampleError, WorkerError
from stoker.testing import assert_equal_batches
from support.crashes import by_signal, dying_of, failing_at, is_worker, leave, numbers, segfault
from support.loading import load, numbered


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> str:
    return numbered(tmp_path_factory.mktemp("numbers") / "a.tar", 60)


@pytest.mark.parametrize("how", [segfault, by_signal, leave])
@pytest.mark.parametrize("on_error", ["replace", "drop"])
def test_a_crash_costs_one_record(
    shard: str, tmp_path: Path, on_error: Any, how: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Batches, masks and counters over two epochs are those of a run in which the sample is bad by an error."""
    with load(numbers(shard, failing_at({17}), on_error=on_error)) as loader:
        expected = [batch for _ in range(2) for batch in loader]
        num_bad = loader.stats()["bad_samples"]
    quarantine = tmp_path / "bad.jsonl"
    pipeline = numbers(shard, dying_of({17}, how), on_error=on_error)
    with (
        caplog.at_level(logging.WARNING, "stoker"),
        load(pipeline, num_workers=2, quarantine=quarantine) as loader,
    ):
        found = [batch for _ in range(2) for batch in loader]
        assert loader.stats()["bad_samples"] == num_bad
    assert_equal_batches(found, expected)
    (entry,) = [json.loads(line) for line in quarantine.read_text().splitlines()]
    assert (entry["row"], entry["key"]) == (17, "00017")
    assert "ended its process 2 times" in entry["reason"]
    assert ("exited with code 3" if how is leave else "SIGSEGV") in entry["reason"]
    (told,) = [record.getMessage() for record in caplog.records if "takes its place" in record.getMessage()]
    assert "in hand" in told
    assert ("exited with code 3" if how is leave else "SIGSEGV") in told


def test_with_raise_the_sample_is_named(shard: str) -> None:
    with load(numbers(shard, dying_of({17}), on_error="raise"), num_workers=2) as loader:
        for _ in range(2):
            with pytest.raises(SampleError, match=r"row 17 \(key '00017'\): making it ended its process 2 times"):
                list(loader)
            loader.load_state_dict(loader.state_dict())


def test_two_of_one_batch(shard: str, caplog: pytest.LogCaptureFixture) -> None:
    """They cost one worker: the next one meets both of them in its child."""
    bad = {8, 10}
    settings: dict[str, Any] = {"on_error": "replace", "shuffle": False, "batch_size": 8}
    with load(numbers(shard, failing_at(bad), **settings)) as loader:
        expected = list(loader)
    with (
        caplog.at_level(logging.WARNING, "stoker"),
        load(numbers(shard, dying_of(bad), **settings), num_workers=2) as loader,
    ):
        assert_equal_batches(list(loader), expected)
        assert loader.stats()["bad_samples"] == 2
    assert len([record for record in caplog.records if "takes its place" in record.getMessage()]) == 1


def test_whoever_makes_it_next_is_told(shard: str, caplog: pytest.LogCaptureFixture) -> None:
    """In five epochs the sample comes to both workers; one dies of it, once."""
    pipeline = numbers(shard, dying_of({17}), on_error="replace", lanes=1)
    with caplog.at_level(logging.WARNING, "stoker"), load(pipeline, num_workers=2, prefetch_bytes=0) as loader:
        for _ in range(5):
            masks = np.concatenate([batch["__mask__"] for batch in loader])
            assert np.count_nonzero(~masks) == 1
    assert len([record for record in caplog.records if "takes its place" in record.getMessage()]) == 1


def test_the_first_of_a_data_set_has_columns_from_another(shard: str) -> None:
    pipeline = numbers(shard, dying_of({0}), on_error="replace", batch_size=1, shuffle=False)
    with load(pipeline, num_workers=1) as loader:
        first = next(iter(loader))
    assert not first["__mask__"].any()
    assert "cls" in first


def test_a_worker_that_always_dies_is_an_error(shard: str) -> None:
    """What no child process shows ends the training, and says so."""

    def die(sample: dict[str, Any]) -> dict[str, Any]:
        if is_worker():
            segfault()
        return sample

    with (
        load(numbers(shard, die), num_workers=1) as loader,
        pytest.raises(WorkerError, match=r"SIGSEGV.*one before it"),
    ):
        list(loader)
