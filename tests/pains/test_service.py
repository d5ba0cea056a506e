"""What users of services suffer: pains 24, 31, 34, 59, 61 (``tests/cluster``: 9, 20, 23, 33, 57, 60)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker import ops
from stoker.errors import SpecError, StallError, StokerError
from stoker.testing import keys_of
from support.cluster import DEADLINE_S, Cluster, until
from support.faulty_http import Stall, run_faulty_http
from support.loading import load, numbered
from support.programs import texts
from support.shards import make_shards, tar_bytes

NUM_SAMPLES = 60


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("shards")
    make_shards(folder, (20, 20, 20), images=False)
    return f"{folder}/shard-*.tar"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    options = ("--num-threads", "4", "--allow-code")
    with Cluster(tmp_path_factory.mktemp("cluster"), 2, worker_options=options) as running:
        yield running


# -- waits that end ----------------------------------------------------------------------------------------------------


def test_one_worker_killed_and_another_stopped(tmp_path: Path) -> None:
    """Pain 24: with one worker killed and another stopped, the third makes the rest."""
    path = numbered(tmp_path / "a.tar", 400)
    with (
        Cluster(tmp_path / "cluster", 3) as cluster,
        load(texts(path), service=cluster.url, prefetch_bytes=1) as loader,
    ):
        batches = iter(loader)
        keys = keys_of([next(batches)])
        cluster.workers[0].kill()
        cluster.workers[1].freeze()
        keys += keys_of(batches)
    with load(texts(path)) as loader:
        assert keys == keys_of(loader)


def test_a_service_without_workers_is_named(tmp_path: Path) -> None:
    """Pain 24: with nobody to make batches, the wait ends at its deadline, and the error says so."""
    path = numbered(tmp_path / "a.tar", 40)
    with Cluster(tmp_path / "cluster", 1) as cluster:
        with load(texts(path), service=cluster.url, prefetch_bytes=1, timeout_s=3) as loader:
            batches = iter(loader)
            next(batches)
            cluster.workers[0].kill()
            with pytest.raises(StallError, match="worker"):
                list(batches)
        with pytest.raises(StallError, match="worker"):
            load(texts(path), service=cluster.url, timeout_s=1)
    with pytest.raises(StokerError, match=f"no service answers at {cluster.url}"):
        load(texts(path), service=cluster.url, timeout_s=1)


def test_a_shard_that_is_blocked_is_named(tmp_path: Path, cluster: Cluster) -> None:
    """Pain 59: a rank whose shard's store stalls fails in time, before a collective, and names store and shard."""
    manifest = str(tmp_path / "index.parquet")
    with run_faulty_http() as server:
        samples = [(f"{number:05d}", {"cls": b"1", "raw": bytes(4096)}) for number in range(64)]
        url = server.put("a.tar", tar_bytes(samples))
        source = stoker.tar(url, manifest=manifest, chunk_bytes=16 << 10)
        pipeline = stoker.Pipeline(source, [ops.Label("cls")], batch_size=4)
        load(pipeline).close()
        server.scripts["/a.tar"].extend([Stall()] * 200)
        errors = []
        for rank in range(2):
            with (
                load(pipeline, rank, 2, service=cluster.url, timeout_s=3) as loader,
                pytest.raises(StallError) as caught,
            ):
                list(loader)
            errors.append(str(caught.value))
    for rank, text in enumerate(errors):
        assert "storage" in text
        assert "a.tar" in text
        assert f"rank {rank}" in text


# -- code -------------------------------------------------------------------------------------------------------------


def test_lambdas_and_closures_are_sent(cluster: Cluster, shards: str) -> None:
    """Pain 31: a lambda and a closure go to workers by value, and give what they give here."""
    table = {str(label): label * 100 for label in range(10)}

    def look_up(sample: dict[str, Any]) -> dict[str, Any]:
        return {**sample, "looked": table[str(sample["cls"])]}

    pipeline = texts_then(shards, ops.Map(look_up), ops.Map(lambda sample: {**sample, "twice": sample["looked"] * 2}))
    with load(pipeline, service=cluster.url) as loader:
        for batch in loader:
            assert list(batch["twice"]) == [200 * int(label) for label in batch["cls"]]


@pytest.mark.parametrize("what", ["file", "lock"])
def test_what_cannot_be_sent_is_named_at_once(tmp_path: Path, shards: str, what: str) -> None:
    """Pain 31: a transform with an open file or a lock fails when the loader is made, within 1 s, naming what it is."""
    with (tmp_path / "names.txt").open("w") as log:
        held: Any = log if what == "file" else threading.Lock()

        class Transform:
            def __init__(self) -> None:
                self.held = held

            def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
                return {**sample, "held": str(self.held)}

        pipeline = texts_then(shards, ops.Map(Transform()))
        begun_s = time.monotonic()
        with pytest.raises(SpecError, match="held"):  # nobody listens there: it is found before anything is sent
            load(pipeline, service="stoker://127.0.0.1:9", timeout_s=30)
        assert time.monotonic() - begun_s < 5  # 1 s, and the rest for cores that are busy with other tests


def test_workers_that_allow_no_code_refuse_it(tmp_path: Path, shards: str) -> None:
    """Pain 31: where no worker allows code, the error says so, and what to do."""
    with Cluster(tmp_path / "cluster", 1) as cluster:
        pipeline = texts_then(shards, ops.Map(lambda sample: sample))
        with pytest.raises((SpecError, StallError), match=r"allow[-_]code"):
            list(load(pipeline, service=cluster.url, timeout_s=3))


def texts_then(shards: str, *steps: Any) -> stoker.Pipeline:
    """Labels first, then these steps."""
    source = stoker.tar(shards, chunk_bytes=8192)
    return stoker.Pipeline(source, [ops.Label("cls"), *steps], batch_size=4)


# -- sharing -----------------------------------------------------------------------------------------------------------


def test_ranks_share_what_is_made(cluster: Cluster, tmp_path: Path) -> None:
    """Pain 34 (CPU): four clients of one epoch cost one epoch's work, not four, and none opens a GPU."""
    path = numbered(tmp_path / "a.tar", 400)
    pipeline = texts(path, seed=34, tail="pad")
    loaders = [load(pipeline, rank, 4, service=cluster.url, prefetch_bytes=1 << 10) for rank in range(4)]
    try:
        steps = list(zip(*loaders, strict=True))
        assert len({key for step in steps for key in keys_of(step)}) == 400
        until("all rows are told", lambda: cluster.rows_made(pipeline) >= 400)
        made = cluster.rows_made(pipeline)
    finally:
        for loader in loaders:
            loader.close()
    assert made < 800


# -- slow samples ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_order", [True, False])
def test_a_slow_sample_is_passed_by(cluster: Cluster, tmp_path: Path, in_order: bool) -> None:
    """Pain 61: while one sample blocks, batches behind it are made, and out of order they are handed out as well."""
    path, gate = numbered(tmp_path / "a.tar", 200), tmp_path / "gate"

    def slow(sample: dict[str, Any]) -> dict[str, Any]:
        deadline_s = time.monotonic() + DEADLINE_S
        while sample["cls"] == 5 and not gate.exists() and time.monotonic() < deadline_s:
            time.sleep(0.01)
        return sample

    pipeline = texts_then(path, ops.Map(slow, seed_globals=False))
    with load(pipeline, service=cluster.url, in_order=in_order) as loader:
        batches = iter(loader)
        # The sample is in batch 8 of 50, the second of its lane; the first 8 come in any case, 64 may be passed by it.
        early = keys_of(next(batches) for _ in range(8 if in_order else 40))
        assert "00005" not in early
        until("the batches behind it are made", lambda: cluster.rows_made(pipeline) >= 180)
        gate.touch()
        keys = early + keys_of(batches)
    if in_order:
        with load(texts_then(path, ops.Label("cls"))) as loader:
            assert keys == keys_of(loader)
    assert sorted(keys) == [f"{number:05d}" for number in range(200)]
