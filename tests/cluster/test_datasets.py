"""A torch dataset whose samples are fetched at a service gives what it gives here, whoever fetches them."""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, get_worker_info

from stoker.compat.loader import DataLoader
from stoker.errors import SpecError, StallError, WorkerError
from stoker_proto.v1 import control_pb2
from support.cluster import Child, Cluster, alive, until
from support.proxy import Cut, Drop, run_proxies
from support.torch_datasets import Drawing

COUNT = 160
BATCH = 4
CODE = ("--num-threads", "2", "--allow-code")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster", worker_options=CODE) as running:
        yield running


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One worker with room, which lives through all tests that harm none: its first process takes seconds."""
    options = ("--num-threads", "1", "--allow-code", "--max-processes", "4")
    with Cluster(tmp_path_factory.mktemp("quiet"), 1, worker_options=options) as running:
        yield running


def load(dataset: Any, **options: Any) -> DataLoader[Any]:
    """A loader whose generators, and so whose order, depend on nothing outside."""
    generator = torch.Generator().manual_seed(options.pop("seed", 7))
    settings = {"batch_size": BATCH, "shuffle": True, "seeding": "sample", "timeout": 60.0, **options}
    if isinstance(dataset, IterableDataset):
        del settings["shuffle"]
    return DataLoader(dataset, generator=generator, **settings)


def here(dataset: Any, num_epochs: int = 1) -> list[Any]:
    """What the loader gives without workers."""
    with load(dataset, timeout=0) as loader:
        return [batch for _ in range(num_epochs) for batch in loader]


def taken(loader: DataLoader[Any], events: Mapping[int, Callable[[], object]] | None = None) -> list[Any]:
    """One epoch, with things that happen before the batches of these indices are taken."""
    found = []
    for index, batch in enumerate(loader):
        if events and index in events:
            events[index]()
        found.append(batch)
    return found


def assert_same(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for index, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert one.keys() == other.keys()
        for name in one:
            assert torch.equal(one[name], other[name]), f"{name} of batch {index}"


def num_processes(cluster: Cluster) -> int:
    status = cluster.status()
    assert status is not None
    return sum(worker.beat.num_processes for worker in status.workers if worker.state != "dead")


@pytest.mark.parametrize("num_workers", [1, 2])
def test_the_batches_are_those_of_no_workers(cluster: Cluster, num_workers: int) -> None:
    """Issue 4: batches, their order and what augmentations draw do not depend on who fetches the samples."""
    cluster.start_workers(num_workers)
    dataset = Drawing(COUNT)
    with load(dataset, num_workers=2, service=cluster.url, job="pictures") as loader:
        found = taken(loader)
        cluster.wait_for(
            "each has its processes",
            lambda status: (
                sorted(worker.beat.num_processes for worker in status.workers) == ([2] if num_workers == 1 else [1, 1])
            ),
        )
        cluster.wait_for("the job is shown", lambda status: [job.job.name for job in status.jobs] == ["pictures"])
        found += taken(loader)
    assert_same(found, here(dataset, 2))
    cluster.wait_for("the job has ended", lambda status: not status.jobs)
    cluster.wait_for("and the processes", lambda _: num_processes(cluster) == 0)


def test_kill_of_a_worker_loses_nothing(cluster: Cluster) -> None:
    """Issue 4: kill -9 of a worker of the service in mid-epoch loses no sample and doubles none."""
    cluster.start_workers(2)
    dataset = Drawing(COUNT)
    with load(dataset, num_workers=2, service=cluster.url) as loader:
        found = taken(loader, {5: cluster.workers[0].kill})
    assert_same(found, here(dataset))


def test_kill_of_all_workers(cluster: Cluster) -> None:
    """Issue 4: while no worker is there the loader waits, and goes on with those that come."""
    cluster.start_workers(1)
    dataset = Drawing(COUNT)

    def replace_all() -> None:
        cluster.workers[0].kill()
        cluster.start_worker()

    with load(dataset, num_workers=2, service=cluster.url) as loader:
        found = taken(loader, {5: replace_all})
    assert_same(found, here(dataset))


def test_a_frozen_worker_is_passed_by(cluster: Cluster) -> None:
    """Issue 4: a worker that is stopped is given up after three beats."""
    cluster.start_workers(2)
    dataset = Drawing(COUNT)
    with load(dataset, num_workers=2, service=cluster.url) as loader:
        found = taken(loader, {5: cluster.workers[0].freeze})
    cluster.workers[0].thaw()
    assert_same(found, here(dataset))


def test_a_network_that_is_cut_and_goes_silent(tmp_path: Path) -> None:
    """Issue 4: a connection that breaks, or says nothing, is another one's work; no task is blamed."""
    with run_proxies() as proxies, Cluster(tmp_path / "cluster", proxies=proxies, worker_options=CODE) as cluster:
        cluster.start_workers(2)
        dataset = Drawing(COUNT)

        def cut() -> None:
            for worker in cluster.workers:
                assert worker.proxy is not None
                worker.proxy.fail(Cut())

        def drop() -> None:
            proxy = cluster.workers[0].proxy
            assert proxy is not None
            proxy.fail(Drop())

        with load(dataset, num_workers=2, service=cluster.url) as loader:
            found = taken(loader, {5: cut, 6: cut, 7: cut, 25: drop})
    assert_same(found, here(dataset))


def test_drained_workers_end_well(cluster: Cluster) -> None:
    """Issue 4: a worker that drains, by command or by SIGTERM, hands its processes over and ends with 0."""
    cluster.start_workers(3)
    dataset = Drawing(COUNT)
    by_command, by_signal, rest = cluster.workers

    def drain() -> None:
        cluster.control.Drain(control_pb2.DrainRequest(worker_id=by_command.name), timeout=10)

    with load(dataset, num_workers=2, service=cluster.url) as loader:
        found = taken(loader, {5: drain, 20: by_signal.terminate})
        assert [by_command.wait(), by_signal.wait()] == [0, 0]
        cluster.wait_for("one is left", lambda status: alive(status) == [rest.name])
    assert_same(found, here(dataset))


def test_the_dispatcher_may_die(cluster: Cluster) -> None:
    """Issue 4: streams do not notice a dispatcher that is killed and started again."""
    cluster.start_workers(2)
    dataset = Drawing(COUNT)
    with load(dataset, num_workers=2, service=cluster.url) as loader:
        found = taken(loader, {5: cluster.restart_dispatcher})
        found += taken(loader)
    assert_same(found, here(dataset, 2))


def test_workers_that_come_are_used_in_the_next_epoch(cluster: Cluster) -> None:
    """Issue 4: a process stays where it is for an epoch; then it moves to where the dispatcher wants it."""
    cluster.start_workers(1)
    dataset = Drawing(COUNT)
    with load(dataset, num_workers=2, service=cluster.url) as loader:
        found = taken(loader)
        cluster.start_workers(1)
        cluster.wait_for("both own a lane", lambda _: len(cluster.owners()) == 2)

        def spread() -> bool:
            status = cluster.status()
            found_now = taken(loader)
            found.extend(found_now)
            return status is not None and [worker.beat.num_processes for worker in status.workers] == [1, 1]

        until("each has a process", spread)
    assert_same(found, here(dataset, len(found) * BATCH // COUNT))


def test_code_has_to_be_allowed(tmp_path: Path) -> None:
    """Issue 4: a service that runs no users' code says so within 5 s; where some workers do, they are used."""
    dataset = Drawing(COUNT)
    with Cluster(tmp_path / "cluster", 1) as cluster:
        begun_s = time.monotonic()
        with load(dataset, num_workers=2, service=cluster.url) as loader:
            with pytest.raises(SpecError, match="--allow-code"):
                next(iter(loader))
            assert time.monotonic() - begun_s < 20  # 5, on a quiet machine
        cluster.start_worker("--allow-code")
        cluster.wait_for("both are there", lambda status: len(alive(status)) == 2)
        with load(dataset, num_workers=1, service=cluster.url) as loader:
            assert_same(taken(loader), here(dataset))


class Kinds:
    """Values of many kinds, small and large."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return {
            "large": torch.arange(index, index + (1 << 20)).view(1 << 10, 1 << 10),
            "last": torch.rand(8, 3, 64, 64).to(memory_format=torch.channels_last),
            "half": torch.full((5,), index, dtype=torch.bfloat16),
            "none": torch.empty(0, 3),
            "sparse": torch.eye(4).to_sparse(),
            "array": np.arange(index, index + (1 << 18)),
            "text": "ä" * index,
            "nothing": None,
            "nested": ([index, (b"x",)], {index: {"set"}}),
        }


def test_values_of_any_kind_arrive_as_they_are(quiet: Cluster) -> None:
    """Issue 4: what crosses the network is what the dataset gave: dtypes, strides, and memory that may be written."""
    options = {"batch_size": None, "shuffle": False}
    with load(Kinds(), num_workers=2, service=quiet.url, **options) as loader:
        found = list(loader)
    for index, (one, other) in enumerate(zip(found, load(Kinds(), timeout=0, **options), strict=True)):
        assert one.keys() == other.keys()
        for name in ("large", "last", "half", "none"):
            assert one[name].dtype == other[name].dtype
            assert one[name].stride() == other[name].stride()
            assert torch.equal(one[name], other[name])
        assert torch.equal(one["sparse"].to_dense(), torch.eye(4))
        assert torch.equal(one["array"], other["array"])
        assert [one[name] for name in ("text", "nothing", "nested")] == ["ä" * index, None, other["nested"]]
        for name in ("large", "array"):
            one[name] += 1


@pytest.mark.parametrize("options", [{"persistent_workers": True}, {"in_order": False}, {"prefetch_factor": 8}])
def test_with_other_settings(quiet: Cluster, options: dict[str, Any]) -> None:
    """Issue 4: torch's settings mean what they mean with processes of this machine."""
    found: list[Any] = []
    expected: list[Any] = []
    for service, batches in ((quiet.url, found), (None, expected)):
        with load(Drawing(COUNT), num_workers=2, service=service, **options) as loader:
            for _ in range(2):
                batches.extend(taken(loader))
    assert_same(in_order_of(found, expected), expected)


def in_order_of(found: list[Any], expected: list[Any]) -> list[Any]:
    """The same batches, each epoch in the order of another list."""
    half = len(expected) // 2
    ordered = []
    for begin in (0, half):
        by_index = {tuple(batch["index"].tolist()): batch for batch in found[begin : begin + half]}
        ordered += [by_index[tuple(batch["index"].tolist())] for batch in expected[begin : begin + half]]
    return ordered


USERS_DATASET = """
import torch
from dataclasses import dataclass
from torch.utils.data import IterableDataset
from users_part import scaled


@dataclass(frozen=True)
class Key:
    number: int


class Mine:
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return {'x': torch.tensor(scaled(index.number if isinstance(index, Key) else index))}


@dataclass
class Mark:
    number: int


class Marks(IterableDataset):
    def __init__(self):
        self.state = Mark(0)

    def __iter__(self):
        while self.state.number < 6:
            mark = self.state
            self.state = Mark(mark.number + 1)
            yield mark

    def state_dict(self):
        return {'mark': self.state}

    def load_state_dict(self, state):
        self.state = state['mark']
"""


def test_a_dataset_of_the_users_own_module(quiet: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 4: modules of the user's go by value; the service's workers have none of them."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "users_part.py").write_text("def scaled(number):\n    return number * 10\n")
    (tmp_path / "modules" / "users_dataset.py").write_text(USERS_DATASET)
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    users = importlib.import_module("users_dataset")
    try:
        mine = users.Mine()
        with load(mine, num_workers=1, service=quiet.url) as loader:
            assert_same(taken(loader), here(mine))
        keys = [users.Key(number) for number in range(12)]
        options = {"shuffle": False, "sampler": keys, "batch_size": None}
        with load(mine, num_workers=1, service=quiet.url, **options) as loader:
            found = [int(sample["x"]) for sample in loader]
        assert found == [10 * number for number in range(12)]
        marks = users.Marks()
        with load(marks, num_workers=1, batch_size=None, service=quiet.url) as loader:
            iterator = iter(loader)
            given = [next(iterator) for _ in range(3)]
            assert all(type(mark) is users.Mark for mark in given)
            state = loader.state_dict()
        with load(marks, num_workers=1, batch_size=None, service=quiet.url) as loader:
            loader.load_state_dict(state)
            given += loader
        assert [mark.number for mark in given] == list(range(6))
    finally:
        for name in ("users_dataset", "users_part"):
            sys.modules.pop(name)


class Trouble(Exception):  # noqa: N818  # users name theirs as they like
    """An error of a user's own kind."""


class Failing(Drawing):
    """One sample raises, kills its process, or ends it."""

    def __init__(self, what: str, index: int = 17) -> None:
        super().__init__(COUNT)
        self.what, self.index = what, index

    def __getitem__(self, index: int) -> Any:
        if index == self.index:
            match self.what:
                case "raise":
                    raise Trouble("no such picture", index)
                case "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "exit":
                    os._exit(3)
        return super().__getitem__(index)


def test_errors_are_the_users_own(quiet: Cluster) -> None:
    """Issue 4: an error has its type, its text, the trace at the worker and the sample; the loader can be used on."""
    with load(Failing("raise"), num_workers=2, service=quiet.url, shuffle=False) as loader:
        with pytest.raises(Trouble, match="no such picture") as caught:
            list(loader)
        notes = "\n".join(caught.value.__notes__)
        assert "sample index 17" in notes
        assert "__getitem__" in notes
        assert caught.value.args == ("no such picture", 17)


@pytest.mark.parametrize("what, how", [("kill", "SIGKILL"), ("exit", "code 3")])
def test_a_process_that_dies_is_named_with_its_end(quiet: Cluster, what: str, how: str) -> None:
    """Issue 4: users' code that ends its process twice ends the loader, which names worker, end and samples."""
    with load(Failing(what), num_workers=2, service=quiet.url, shuffle=False) as loader:
        with pytest.raises(WorkerError, match=how) as caught:
            list(loader)
        assert "worker w0" in str(caught.value)
        assert "17" in str(caught.value)
    quiet.wait_for("its processes are gone", lambda _: num_processes(quiet) == 0)
    assert quiet.workers[0].is_running


def are_gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def begin_trainer(cluster: Cluster, folder: Path) -> tuple[Child, list[int]]:
    """A trainer, and the processes that it has at the service."""
    trainer = Child("trainer", folder / "trainer.log", "support.dataset_trainer", [cluster.url, "2"])
    pids = json.loads(trainer.next_line() or "[]")
    assert len(pids) == 2, trainer.log()
    assert not are_gone(pids)
    return trainer, pids


def test_nothing_is_left_of_a_trainer_or_a_worker_that_was_killed(quiet: Cluster, tmp_path: Path) -> None:
    """Issue 4: processes end with their trainer, and with their worker, however those end."""
    trainer, pids = begin_trainer(quiet, tmp_path)
    trainer.close()
    until("the trainer's processes are gone", functools.partial(are_gone, pids), 10.0)
    quiet.wait_for("its places are free", lambda _: num_processes(quiet) == 0)
    with Cluster(tmp_path / "cluster", 1, worker_options=CODE) as cluster:
        for how in ("kill", "terminate"):
            worker = cluster.workers[0]
            trainer, pids = begin_trainer(cluster, tmp_path)
            getattr(worker, how)()
            worker.wait()
            until("the worker's processes are gone", functools.partial(are_gone, pids), 10.0)
            trainer.close()
            cluster.bury(worker)
            cluster.start_workers(1)


class Counted(IterableDataset[Any]):
    """Numbers, dealt out by the workers themselves."""

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        start, step = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        for number in range(start, COUNT, step):
            yield {"x": torch.tensor(number)}


def test_an_iterable_dataset(cluster: Cluster) -> None:
    """Issue 4: batches of an iterable dataset come in torch's order; a worker's death is an error that says why."""
    cluster.start_workers(1)
    expected = [batch["x"].tolist() for batch in torch.utils.data.DataLoader(Counted(), BATCH, num_workers=2)]
    with load(Counted(), num_workers=2, service=cluster.url) as loader:
        for _ in range(2):
            assert [batch["x"].tolist() for batch in loader] == expected
    with load(Counted(), num_workers=2, service=cluster.url) as loader, pytest.raises(WorkerError, match="is lost"):
        taken(loader, {5: cluster.workers[0].kill})


def test_more_workers_than_there_is_room_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Issue 4: a service whose processes are all taken is waited for, in the log, until the deadline."""
    with Cluster(tmp_path / "cluster", worker_options=(*CODE, "--max-processes", "1")) as cluster:
        cluster.start_workers(1)
        dataset = Drawing(COUNT)
        with load(dataset, num_workers=1, service=cluster.url) as loader:
            assert_same(taken(loader), here(dataset))
            late = load(dataset, num_workers=1, service=cluster.url, timeout=4.0)
            with late, pytest.raises(StallError, match="all 1 processes of worker w0"):
                list(late)
        assert "waits for a place" in caplog.text
        with load(dataset, num_workers=2, service=cluster.url) as loader:
            iterator = iter(loader)
            cluster.wait_for("one has a process", lambda _: num_processes(cluster) == 1)
            cluster.start_workers(1)
            found = list(iterator)
            cluster.wait_for("the other one, too", lambda _: num_processes(cluster) == 2)
        assert_same(found, here(dataset))
