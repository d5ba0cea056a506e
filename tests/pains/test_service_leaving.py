"""A client of a service leaves, is forked or interrupted, and a service stops (pains 26, 27, 29, 30, 34)."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stoker.testing import keys_of
from stoker_proto.v1 import control_pb2
from support import programs
from support.cluster import Child, Cluster
from support.loading import load
from support.programs import in_time, texts
from support.shards import make_shards

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


@contextmanager
def started(folder: Path, name: str, *arguments: str) -> Iterator[Child]:
    """A program of ``support/service_programs.py``."""
    program = Child(name, folder / f"{name}.log", "support.service_programs", [name, *arguments], takes_orders=True)
    try:
        yield program
    finally:
        program.close()


@contextmanager
def frozen(cluster: Cluster) -> Iterator[None]:
    """All workers are stopped."""
    for worker in cluster.workers:
        worker.freeze()
    try:
        yield
    finally:
        for worker in cluster.workers:
            worker.thaw()
        cluster.wait_for_workers(cluster.workers)


# -- leaving -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, status", [("break_out", 0), ("iterator_kept", 0), ("never_iterated", 0), ("raise_in_loop", 1)]
)
def test_a_program_ends_in_time(cluster: Cluster, shards: str, tmp_path: Path, name: str, status: int) -> None:
    """Pain 26: a program with a live loader ends within 2 s of its last line, with its own exit status and text."""
    with started(tmp_path, name, cluster.url, shards) as program:
        assert program.next_line() == '"leaving"', program.log()
        with in_time():
            assert program.wait() == status
        errors = program.log().splitlines()[1:]
    if status:
        assert errors[-1] == "RuntimeError: the trainer's own error"
        assert "\n".join(errors).count("Traceback") == 1
    else:
        assert errors == []


@pytest.mark.parametrize("name", ["stuck", "closed_while_stuck"])
def test_a_program_that_waits_ends_in_time(cluster: Cluster, shards: str, tmp_path: Path, name: str) -> None:
    """Pain 26: ending, and ``close``, take no longer while all workers are frozen and a thread waits for a batch."""
    with started(tmp_path, name, cluster.url, shards) as program:
        assert program.next_line() == '"training"', program.log()
        with frozen(cluster):
            program.order("go")
            assert program.next_line() == '"leaving"'
            with in_time():
                assert program.wait() == 0, program.log()


def test_ctrl_c_ends_a_program(cluster: Cluster, shards: str, tmp_path: Path) -> None:
    """Pain 26: Ctrl-C ends a training loop within 2 s, as it ends any Python program."""
    with started(tmp_path, "interrupted", cluster.url, shards) as program:
        assert program.next_line() == '"training"', program.log()
        with in_time():
            program.process.send_signal(signal.SIGINT)
            assert program.wait() == -signal.SIGINT
        assert program.log().count("Traceback") == 1
        assert program.log().rstrip().endswith("KeyboardInterrupt")


def test_a_second_ctrl_c_ends_a_program_that_is_closing(cluster: Cluster, shards: str, tmp_path: Path) -> None:
    """Pain 26: Ctrl-C wakes a wait for a batch of workers that are frozen; a second one ends the program at once."""
    with started(tmp_path, "interrupted_twice", cluster.url, shards) as program:
        assert program.next_line() == '"training"', program.log()
        with frozen(cluster):
            program.order("go")
            assert program.next_line() == '"waiting"'
            with in_time():
                program.process.send_signal(signal.SIGINT)
                assert program.next_line() == '"closing"'
                program.process.send_signal(signal.SIGINT)
                assert program.wait() == -signal.SIGINT


def test_closing_leaves_no_thread(cluster: Cluster, shards: str) -> None:
    """Pain 26: ``close`` ends all threads of ours within 2 s, and so does an error that leaves the ``with``."""
    before = set(programs.stoker_threads())
    loader = load(texts(shards), service=cluster.url)
    next(iter(loader))
    with in_time():
        loader.close()
    loader.close()
    assert set(programs.stoker_threads()) <= before


# -- stopping ----------------------------------------------------------------------------------------------------------


def test_stop_ends_everything(tmp_path: Path, shards: str) -> None:
    """Pain 27: the stop verb ends dispatcher and workers with exit status 0, while a job runs."""
    with Cluster(tmp_path / "cluster", 2) as cluster, load(texts(shards), service=cluster.url) as loader:
        next(iter(loader))
        with in_time():
            cluster.control.Stop(control_pb2.StopRequest(), timeout=10)
            assert [child.wait() for child in (cluster.dispatcher, *cluster.workers)] == [0, 0, 0], cluster.logs()


@pytest.mark.parametrize("how", ["option", "command"])
def test_the_service_ends_with_its_jobs(tmp_path: Path, shards: str, how: str) -> None:
    """Pain 27: told to, a service ends once its last job has ended, not before, with exit status 0."""
    options = ("--until-jobs-end",) if how == "option" else ()
    with Cluster(tmp_path / "cluster", 1, dispatcher_options=options) as cluster:
        with (
            load(texts(shards), service=cluster.url) as one,
            load(texts(shards), service=cluster.url, job="b") as other,
        ):
            if how == "command":
                next(iter(one))
                cluster.control.Stop(control_pb2.StopRequest(when_jobs_end=True), timeout=10)
            for _ in range(3):  # a job that repeats
                assert len(keys_of(one)) == NUM_SAMPLES
            one.close()
            assert len(keys_of(other)) == NUM_SAMPLES
            assert cluster.dispatcher.is_running
        assert [child.wait() for child in (cluster.dispatcher, *cluster.workers)] == [0, 0], cluster.logs()


def test_workers_outlive_epochs_and_jobs(cluster: Cluster, shards: str) -> None:
    """Pain 29: the same processes serve epoch after epoch and job after job."""
    pids = [worker.pid for worker in cluster.workers]
    for job in ("one", "two", "three"):
        with load(texts(shards), service=cluster.url, job=job) as loader:
            for _ in range(3):
                assert len(keys_of(loader)) == NUM_SAMPLES
    assert [worker.pid for worker in cluster.workers] == pids
    assert all(worker.is_running for worker in cluster.workers)


# -- forks -------------------------------------------------------------------------------------------------------------


def test_a_fork_is_told_or_reads_on(cluster: Cluster, shards: str, tmp_path: Path) -> None:
    """Pain 30: a child that the user forked after reading reads on or gets a clear error; the parent reads on."""
    with started(tmp_path, "fork_after_reading", cluster.url, shards) as program:
        found, status, rest = (json.loads(program.next_line() or "null") for _ in range(3))
        assert program.wait() == 0, program.log()
    assert found == [56, 60] or ("fork" in found and "spawn" in found), found
    assert (status, rest) == (0, 56)


def test_a_fork_that_makes_its_own_loader(cluster: Cluster, shards: str, tmp_path: Path) -> None:
    """Pain 30: a child that was forked before any loader was made uses the service like any process."""
    with started(tmp_path, "fork_and_load", cluster.url, shards) as program:
        assert [json.loads(program.next_line() or "null") for _ in range(3)] == [60, 0, 60], program.log()
        assert program.wait() == 0, program.log()


def test_a_client_opens_no_gpu(cluster: Cluster, shards: str, tmp_path: Path) -> None:
    """Pain 34 (CPU): a client maps no CUDA library and opens no device that it was not given."""
    with started(tmp_path, "say_environment", cluster.url, shards) as program:
        assert json.loads(program.next_line() or "null") == [60, False, False], program.log()
        assert program.wait() == 0, program.log()
