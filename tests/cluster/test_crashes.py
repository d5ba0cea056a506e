"""A sample that ends the worker which makes it costs a worker or two, and the job one record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.errors import SampleError
from stoker.testing import assert_equal_batches
from support.cluster import Cluster
from support.crashes import dying_of, failing_at, numbers
from support.loading import load, numbered

PREFETCH_BYTES = 4096
NUM_EPOCHS = 3


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> str:
    return numbered(tmp_path_factory.mktemp("numbers") / "a.tar", 160)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three workers, of which two may die."""
    options = ("--num-threads", "2", "--allow-code")
    with Cluster(tmp_path / "cluster", num_workers=3, worker_options=options) as running:
        yield running


def num_dead(cluster: Cluster) -> int:
    return sum(not worker.is_running for worker in cluster.workers)


@pytest.mark.parametrize("on_error", ["replace", "drop"])
@pytest.mark.parametrize("bad", [{17}, {17, 18, 90}], ids=["one", "three"])
def test_a_crash_costs_a_worker_and_a_record(
    cluster: Cluster, shard: str, tmp_path: Path, on_error: Any, bad: set[int]
) -> None:
    """Over some epochs the batches are those of a run in which the samples are bad by an error (pain 36)."""
    settings: dict[str, Any] = {"on_error": on_error, "lanes": 4}
    with load(numbers(shard, failing_at(bad), **settings)) as loader:
        expected = [batch for _ in range(NUM_EPOCHS) for batch in loader]
        num_bad = loader.stats()["bad_samples"]
    quarantine = tmp_path / "bad.jsonl"
    pipeline = numbers(shard, dying_of(bad), **settings)
    with load(pipeline, service=cluster.url, prefetch_bytes=PREFETCH_BYTES, quarantine=quarantine) as loader:
        found = [batch for _ in range(NUM_EPOCHS) for batch in loader]
        assert loader.stats()["bad_samples"] == num_bad
    assert_equal_batches(found, expected)
    entries = [json.loads(line) for line in quarantine.read_text().splitlines()]
    assert sorted(entry["row"] for entry in entries) == sorted(bad)
    assert all("ended its process 2 times" in entry["reason"] and "SIGSEGV" in entry["reason"] for entry in entries)
    assert 1 <= num_dead(cluster) <= len(bad)
    assert num_dead(cluster) < 3


def test_with_raise_the_sample_is_named(cluster: Cluster, shard: str) -> None:
    pipeline = numbers(shard, dying_of({17}), on_error="raise", lanes=4)
    with (
        load(pipeline, service=cluster.url, prefetch_bytes=PREFETCH_BYTES) as loader,
        pytest.raises(SampleError, match=r"row 17 .*SIGSEGV"),
    ):
        list(loader)
    assert 1 <= num_dead(cluster) <= 2  # the second, if the sample was on its way in the next epoch as well


def test_ranks_and_another_job_learn_of_it(cluster: Cluster, shard: str) -> None:
    """Who comes later, with the same pipeline, finds workers that know."""
    pipeline = numbers(shard, dying_of({17}), on_error="replace", lanes=4)
    for rank in range(2):
        with load(pipeline, rank, 2, service=cluster.url, prefetch_bytes=PREFETCH_BYTES) as loader:
            for _ in range(2):
                list(loader)
    assert num_dead(cluster) <= 2
