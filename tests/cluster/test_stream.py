"""A service's stream is local mode's, batch for batch and byte for byte, whoever makes it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker import ops
from stoker.errors import SampleError
from stoker.testing import assert_exactly_once, keys_of
from support.cluster import Cluster
from support.loading import load, tar_of
from support.shards import make_broken_shard, make_shards
from support.streams import assert_same_stream, batches_on, digests, local_stream, pictures

EPOCH = 60
STEPS = 150
"""Two epochs and a half."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def sockets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    options = ("--num-threads", "1", "--no-arena")
    with Cluster(tmp_path_factory.mktemp("sockets"), 2, worker_options=options) as running:
        yield running


@pytest.mark.parametrize("num_workers", [1, 2, 4])
def test_with_any_number_of_workers(cluster: Cluster, shards: str, num_workers: int) -> None:
    """Issue 3: the stream equals local mode's, ids and bytes, and all workers make it."""
    cluster.scale_to(num_workers)
    pipeline = pictures(shards, seed=num_workers)
    with load(pipeline, service=cluster.url) as loader:
        found = digests(batches_on(loader, STEPS))
        cluster.wait_for("all own lanes", lambda _: len(cluster.owners()) == num_workers)
        assert loader.stats()["arena_batches"] >= STEPS
    assert_same_stream(found, local_stream(pipeline.to_json(), STEPS))


def test_over_sockets(sockets: Cluster, shards: str) -> None:
    """Issue 3: without shared memory, the stream is the same."""
    pipeline = pictures(shards)
    with load(pipeline, service=sockets.url) as loader:
        found = digests(batches_on(loader, STEPS))
        stats = loader.stats()
    assert stats["socket_batches"] >= STEPS
    assert stats["arena_batches"] == 0
    assert_same_stream(found, local_stream(pipeline.to_json(), STEPS))


def test_every_kind_of_column(cluster: Cluster, sockets: Cluster, tmp_path: Path) -> None:
    """Text, JSON, ragged fields and lists arrive as local mode gives them, over memory and over sockets."""
    cluster.scale_to(1)
    samples = [
        (f"{number:03d}", {"json": json.dumps({"n": number, "many": list(range(number % 5))}).encode(), "txt": b"x"})
        for number in range(50)
    ]
    source = stoker.tar(tar_of(tmp_path / "a.tar", samples))
    steps = [ops.DecodeJson("json")]
    pipeline = stoker.Pipeline(source, steps, batch_size=7, collate={"json.many": "ragged", "txt": "list"})
    with load(pipeline, output="arrow") as loader:
        expected = list(loader)
    for running in (cluster, sockets):
        with load(pipeline, output="arrow", service=running.url) as loader:
            found = list(loader)
        assert [batch.to_pylist() for batch in found] == [batch.to_pylist() for batch in expected]
        assert [batch.schema for batch in found] == [batch.schema for batch in expected]


@pytest.mark.parametrize("settings", [{"tail": "pad"}, {"tail": "repeat", "lanes": 3}, {"tail": "drop", "lanes": 1}])
def test_with_several_ranks(cluster: Cluster, shards: str, settings: dict[str, Any]) -> None:
    """Each rank of three gets its own stream of local mode, at the same time."""
    cluster.scale_to(2)
    pipeline = pictures(shards, batch_size=7, **settings)
    num_steps = 25

    def consume(rank: int) -> list[str]:
        with load(pipeline, rank, 3, service=cluster.url) as loader:
            return digests(batches_on(loader, num_steps))

    with ThreadPoolExecutor(3) as pool:
        streams = list(pool.map(consume, range(3)))
    for rank, found in enumerate(streams):
        assert_same_stream(found, local_stream(pipeline.to_json(), num_steps, rank, 3))


def test_the_laws_of_the_loader(cluster: Cluster, tmp_path: Path) -> None:
    """``stoker.testing`` holds of a service as of local mode: exactly once, in equally many steps."""
    cluster.scale_to(2)
    make_shards(tmp_path, (7, 11, 2), images=False)
    source = stoker.tar(f"{tmp_path}/shard-*.tar", chunk_bytes=4096)
    pipeline = stoker.Pipeline(source, [ops.Label("cls")], batch_size=4, shuffle=True)
    keys = [f"s{shard:02d}-{row:04d}" for shard, count in enumerate((7, 11, 2)) for row in range(count)]
    for world_size in (1, 2):
        assert_exactly_once(lambda rank, size: load(pipeline, rank, size, service=cluster.url), world_size, keys)


def test_out_of_order_it_is_the_same_batches(cluster: Cluster, shards: str) -> None:
    """Issue 3: with in_order=False every epoch has the same batches, in some order."""
    cluster.scale_to(2)
    pipeline = pictures(shards, seed=11)
    expected = local_stream(pipeline.to_json(), 2 * EPOCH)
    with load(pipeline, service=cluster.url, in_order=False) as loader:
        for epoch in range(2):
            found = digests(loader)
            assert Counter(found) == Counter(expected[epoch * EPOCH : (epoch + 1) * EPOCH])


def test_out_of_order_it_goes_on_where_it_was(cluster: Cluster, shards: str) -> None:
    """Issue 3: with in_order=False a saved state still has each batch once, and fits a loader in order too."""
    cluster.scale_to(2)
    pipeline = pictures(shards, seed=12)
    expected = Counter(local_stream(pipeline.to_json(), EPOCH))
    for num_before in (1, 23, 59):
        with load(pipeline, service=cluster.url, in_order=False) as loader:
            before = digests(batches_on(loader, num_before))
            state = json.dumps(loader.state_dict())
        assert len(state) < 4096
        for service, in_order in ((cluster.url, False), (cluster.url, True), (None, True)):
            with load(pipeline, service=service, in_order=in_order) as loader:
                loader.load_state_dict(json.loads(state))
                assert Counter(before + digests(loader)) == expected


def test_skipping_and_choosing_epochs(cluster: Cluster, shards: str) -> None:
    """``set_epoch`` and ``skip`` mean what they mean in local mode, also when a stream is under way."""
    cluster.scale_to(2)
    pipeline = pictures(shards, seed=13)

    def moved(loader: stoker.DataLoader) -> list[str]:
        found = digests(batches_on(loader, 5))
        loader.skip(20)
        found += digests(batches_on(loader, 10))
        loader.set_epoch(5)
        return found + digests(batches_on(loader, 10))

    with load(pipeline) as here, load(pipeline, service=cluster.url) as there:
        assert_same_stream(moved(there), moved(here))
        assert len(there) == len(here)
        assert there.state_dict() == here.state_dict()


def test_bad_samples_are_told(cluster: Cluster, tmp_path: Path) -> None:
    """The policies for bad samples, their counters and the quarantine file are those of local mode."""
    cluster.scale_to(2)
    make_broken_shard(tmp_path / "a.tar", 40)
    steps = [ops.DecodeImage("jpg", to="image"), ops.CenterCrop("image", 16), ops.Label("cls")]
    for policy in ("replace", "drop"):
        pipeline = stoker.Pipeline(stoker.tar(f"{tmp_path}/a.tar"), steps, batch_size=10, on_error=policy)
        seen = []
        for service in (None, cluster.url):
            quarantine = tmp_path / f"{policy}-{service is None}.jsonl"
            with load(pipeline, quarantine=quarantine, service=service) as loader:
                batches = list(loader)
                bad = loader.stats()["bad_samples"]
            lines = sorted(json.loads(line)["key"] for line in quarantine.read_text().splitlines())
            seen.append((digests(batches), bad, lines, keys_of(batches)))
        assert seen[0] == seen[1]
        assert seen[0][1] > 0
    failing = stoker.Pipeline(stoker.tar(f"{tmp_path}/a.tar"), steps, batch_size=10)
    texts = []
    for service in (None, cluster.url):
        with load(failing, service=service) as loader, pytest.raises(SampleError) as caught:
            list(loader)
        texts.append((caught.value.origin, str(caught.value)))
    assert texts[0] == texts[1]
