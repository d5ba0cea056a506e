"""Workers come, go, die and freeze in mid-epoch, and the stream stays what it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker_proto.v1 import control_pb2
from support.cluster import Cluster, alive
from support.streams import assert_undisturbed, pictures

STEPS = 150


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster") as running:
        yield running


def test_one_four_two_workers(cluster: Cluster, shards: str) -> None:
    """Issue 3: a fleet of 1, then 4, then 2 workers in mid-epoch changes nothing in the stream."""
    cluster.start_workers(1)
    events = {10: lambda: cluster.scale_to(4), 80: lambda: cluster.scale_to(2)}
    assert_undisturbed(cluster.url, pictures(shards), STEPS, events)
    status = cluster.status()
    assert status is not None
    assert status.reassignments > 0


def test_sigterm_of_two_of_four(cluster: Cluster, shards: str) -> None:
    """Pain 33: workers that are told to go under load end well, and no batch is lost, doubled or late by an error."""
    cluster.start_workers(4)
    leaving = cluster.workers[1:3]

    def terminate() -> None:
        for worker in leaving:
            worker.terminate()

    assert_undisturbed(cluster.url, pictures(shards), STEPS, {70: terminate})
    assert [worker.wait() for worker in leaving] == [0, 0]
    cluster.wait_for("two are left", lambda status: len(alive(status)) == 2)


def test_drained_by_command(cluster: Cluster, shards: str) -> None:
    """Issue 3: a worker that is drained hands over its lanes, ends with 0, and clients see no error."""
    cluster.start_workers(2)
    leaving = cluster.workers[0]

    def drain() -> None:
        cluster.control.Drain(control_pb2.DrainRequest(worker_id=leaving.name), timeout=10)

    assert_undisturbed(cluster.url, pictures(shards), STEPS, {30: drain})
    assert leaving.wait() == 0


def test_the_only_worker_is_replaced(cluster: Cluster, shards: str) -> None:
    """Issue 3: when the only worker drains, its client waits for another one."""
    cluster.start_workers(1)
    old = cluster.workers[0]

    def swap() -> None:
        old.terminate()
        cluster.start_worker()

    assert_undisturbed(cluster.url, pictures(shards), STEPS, {30: swap})
    assert old.wait() == 0


def test_kill_of_one_of_several(cluster: Cluster, shards: str) -> None:
    """Pain 24: kill -9 of a worker is no error, and costs no sample."""
    cluster.start_workers(3)
    assert_undisturbed(cluster.url, pictures(shards), STEPS, {20: cluster.workers[0].kill, 90: cluster.workers[1].kill})
    cluster.wait_for("one is left", lambda status: alive(status) == [cluster.workers[2].name])


def test_kill_of_all_workers(cluster: Cluster, shards: str) -> None:
    """Pain 24: while no worker is there the client waits, and goes on with those that come."""
    cluster.start_workers(2)

    def replace_all() -> None:
        for worker in cluster.workers:
            worker.kill()
        cluster.start_worker()

    assert_undisturbed(cluster.url, pictures(shards), STEPS, {40: replace_all})


def test_a_frozen_worker(cluster: Cluster, shards: str) -> None:
    """Pain 24: a worker that is stopped for longer than its lease is passed by; when it wakes it does no harm."""
    cluster.start_workers(2)
    frozen, other = cluster.workers
    events = {20: frozen.freeze, 100: lambda: _thawed(cluster)}
    assert_undisturbed(cluster.url, pictures(shards), STEPS, events)
    cluster.wait_for("both are alive", lambda status: alive(status) == [frozen.name, other.name])


def _thawed(cluster: Cluster) -> None:
    frozen, other = cluster.workers
    cluster.wait_for("the frozen one is dead", lambda status: alive(status) == [other.name])
    frozen.thaw()


def test_more_workers_than_lanes(cluster: Cluster, shards: str) -> None:
    """DESIGN §2: one lane is made by one of three workers, and by the next when that one dies."""
    cluster.start_workers(3)
    pipeline = pictures(shards, lanes=1)

    def kill_the_owner() -> None:
        (name,) = cluster.owners()
        next(worker for worker in cluster.workers if worker.name == name).kill()

    assert_undisturbed(cluster.url, pipeline, STEPS, {20: kill_the_owner})
