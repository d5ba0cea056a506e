"""Workers with different back-ends make one stream; one that loses its GPU costs a restart, not the job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import ops
from stoker.backends.tolerances import TOLERANCES
from stoker.engine.prepared_place import SUFFIX
from stoker.errors import DeviceLostError
from stoker.processes.ending import EXIT_DEVICE_LOST
from stoker.testing import assert_equal_batches
from support.cluster import Cluster, until
from support.loading import load, numbered
from support.shards import make_broken_shard
from support.streams import batches_on, pictures

pytest.importorskip("nvidia.dali")

EPOCH = 60
(LIMIT,) = (each.dali for each in TOLERANCES if each.chain == "imagenet_train, fast")
"""Windows made another size without anti-aliasing, as all pipelines here do."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One worker of each back-end."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        workers = [running.begin_worker("--backend", name) for name in ("cpu", "dali")]
        for worker in workers:
            worker.ready()
        running.wait_for_workers(workers)
        yield running


def assert_close_batches(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> float:
    """All is equal but pixels, which are close; returns the largest difference."""
    assert len(found) == len(expected)
    largest = 0.0
    for one, other in zip(found, expected, strict=True):
        differences = np.abs(one["image"].astype(np.int16) - other["image"].astype(np.int16))
        assert differences.mean(axis=(1, 2, 3)).max() <= LIMIT.mean
        largest = max(largest, float(differences.max()))
        assert_equal_batches([{**one, "image": other["image"]}], [other])
    assert largest <= LIMIT.max
    return largest


def test_workers_of_both_kinds_make_one_stream(cluster: Cluster, shards: str) -> None:
    """Issue 6: ids, masks and order are local mode's, pixels within the table."""
    pipeline = pictures(shards, seed=3)
    with load(pipeline) as loader:
        expected = list(batches_on(loader, 2 * EPOCH))
    with load(pipeline, service=cluster.url) as loader:
        found = list(batches_on(loader, 2 * EPOCH))
        assert cluster.owners() == {worker.name for worker in cluster.workers}
    assert assert_close_batches(found, expected) > 0, "DALI made none"


@pytest.mark.parametrize("on_error", ["replace", "drop"])
def test_both_find_the_same_samples_bad(cluster: Cluster, tmp_path: Path, on_error: Any) -> None:
    make_broken_shard(tmp_path / "broken.tar", num_good=30)
    steps = [ops.DecodeImage("jpg", to="image"), ops.Resize("image", (24, 24), antialias=False), ops.Label("cls")]
    source = stoker.tar(str(tmp_path / "broken.tar"), chunk_bytes=8192)
    pipeline = stoker.Pipeline(source, steps, batch_size=4, lanes=2, window=2, shuffle=True, on_error=on_error)
    reasons = []
    batches = []
    for service in (None, cluster.url):
        log = tmp_path / f"bad-{service is None}.jsonl"
        with load(pipeline, service=service, quarantine=log) as loader:
            batches.append(list(loader))
            assert loader.stats()["bad_samples"]
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        reasons.append(sorted((entry["key"], entry["reason"]) for entry in entries))
    assert reasons[0] == reasons[1]
    assert_close_batches(batches[1], batches[0])


def test_entries_of_the_decoded_cache_are_of_no_back_end(tmp_path: Path, shards: str) -> None:
    """What a DALI worker has kept, a cpu worker reads, and gives the bytes that local mode makes without a cache."""

    def steps(*cache: ops.Cache) -> stoker.Pipeline:
        decode = [ops.DecodeImage("jpg", to="image"), ops.Resize("image", (40, 40), antialias=False)]
        more = [ops.RandomResizedCrop("image", 24, antialias=False), ops.Label("cls")]
        source = stoker.tar(shards, chunk_bytes=8192)
        return stoker.Pipeline(source, [*decode, *cache, *more], batch_size=4, shuffle=True, window=3)

    place = tmp_path / "place"

    def entries() -> dict[Path, int]:
        return {path: path.stat().st_ino for path in place.rglob(f"*{SUFFIX}")}

    cached = steps(ops.Cache(str(place)))
    with load(steps()) as loader:
        expected = list(batches_on(loader, 2 * EPOCH))
    with Cluster(tmp_path / "cluster") as cluster:
        dali = cluster.start_worker("--backend", "dali")
        with load(cached, service=cluster.url) as loader:
            assert_close_batches(list(batches_on(loader, 2 * EPOCH)), expected)
        before = entries()
        assert before
        cluster.bury(dali)
        cluster.wait_for_workers([cluster.start_worker("--backend", "cpu")])
        with load(cached, service=cluster.url, job="another") as loader:
            assert_equal_batches(list(batches_on(loader, 2 * EPOCH)), expected)
    assert before.items() <= entries().items()
    assert len({path.parent for path in entries()}) == 1, "one set: both found and added entries of the same name"


def losing_once(note: Path) -> Any:
    """A function that loses the GPU of the first worker that comes to one sample."""

    def make(sample: dict[str, Any]) -> dict[str, Any]:
        if int(sample["cls"]) == 17:
            try:
                note.open("x").close()
            except FileExistsError:
                return sample
            raise DeviceLostError("the GPU's context is broken: an illegal memory access was encountered")
        return sample

    return ops.Map(make, seed_globals=False)


def test_a_worker_that_loses_its_gpu_ends_and_its_clients_go_on_elsewhere(tmp_path: Path) -> None:
    shard = numbered(tmp_path / "a.tar", 60)

    def numbers(*more: Any) -> stoker.Pipeline:
        return stoker.Pipeline(stoker.tar(shard), [ops.Label("cls"), *more], batch_size=4, shuffle=True, lanes=2)

    with load(numbers(ops.Map(dict, seed_globals=False))) as loader:
        expected = list(loader)
    note = tmp_path / "note"
    with Cluster(tmp_path / "cluster", 2, worker_options=("--num-threads", "1", "--allow-code")) as cluster:
        with load(numbers(losing_once(note)), service=cluster.url) as loader:
            assert_equal_batches(list(loader), expected)
            assert loader.stats()["bad_samples"] == 0
        (lost,) = until("one has ended", lambda: [worker for worker in cluster.workers if not worker.is_running])
        assert lost.wait() == EXIT_DEVICE_LOST
        assert "ends, to be started again: the GPU's context is broken" in lost.log()
