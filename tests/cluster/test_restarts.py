"""A dispatcher that dies, or is not there yet, in mid-epoch changes nothing in the stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cluster import Cluster, alive
from support.loading import load
from support.streams import assert_same_stream, assert_undisturbed, digests, local_stream, pictures

STEPS = 150


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster") as running:
        yield running


def test_a_dispatcher_that_is_killed_and_restarted_is_not_noticed(tmp_path: Path, shards: str) -> None:
    """Issue 3: running streams do not notice; new ones work."""
    pipeline = pictures(shards)
    # A beat of a second: on cores that are busy with other tests, no worker is to be taken for dead meanwhile.
    with Cluster(tmp_path / "cluster", 2, dispatcher_options=("--beat-s", "1")) as cluster:
        events = {20: cluster.dispatcher.kill, 80: cluster.restart_dispatcher}
        stats = assert_undisturbed(cluster.url, pipeline, STEPS, events)
        assert (stats["reconnects"], stats["moves"]) == (0, 0)
        cluster.wait_for_workers(cluster.workers)
        with load(pipeline, service=cluster.url) as loader:
            assert_same_stream(digests(loader), local_stream(pipeline.to_json(), 60))


def test_workers_that_change_while_no_dispatcher_is_there(cluster: Cluster, shards: str) -> None:
    """Issue 3: a worker killed, and another begun, in the absence of the dispatcher."""
    cluster.start_workers(2)
    old = cluster.workers[0]

    def upset() -> None:
        cluster.dispatcher.kill()
        old.kill()
        new = cluster.begin_worker()
        cluster.restart_dispatcher()
        new.ready()

    assert_undisturbed(cluster.url, pictures(shards), STEPS, {20: upset})
    cluster.wait_for("two are alive", lambda status: len(alive(status)) == 2)


def test_a_loader_before_its_service(cluster: Cluster, shards: str) -> None:
    """A loader made when no worker is there yet waits for the first one."""
    pipeline = pictures(shards)
    worker = cluster.begin_worker()
    with load(pipeline, service=cluster.url) as loader:
        assert_same_stream(digests(loader), local_stream(pipeline.to_json(), 60))
    worker.ready()
