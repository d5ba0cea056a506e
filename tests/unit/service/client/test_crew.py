"""A crew with the real dispatcher and real workers in this process; what it is told, event by event."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, default_collate

from stoker.compat.crew import CrewOptions, Ended, Event, Failed, Job, Lost, Made, Task
from stoker.errors import ClosedError, ServiceError, SpecError, StallError
from stoker_service.client.crew import RemoteCrew, open_crew
from stoker_service.dispatcher.server import DispatcherServer
from stoker_service.options import DispatcherOptions, WorkerOptions
from stoker_service.worker.server import WorkerServer
from support.cluster import free_port, until

BEAT_S = 0.25
WAIT_S = 60.0


class Rows:
    """Sample ``i`` is ``[i]``, or what is done with a negative one."""

    def __init__(self) -> None:
        self.offset = 0
        self.num_calls = 0
        self.table = np.zeros(1 << 20, np.uint8)

    def __getitem__(self, index: int) -> torch.Tensor:
        self.num_calls += 1
        if index == -1:
            os.kill(os.getpid(), signal.SIGKILL)
        if index == -2:
            raise KeyError("no such row")
        if index == -3:
            threading.Event().wait(WAIT_S)
        if index == -4:
            return torch.tensor([self.num_calls])
        return torch.tensor([index + self.offset])


class Counter(IterableDataset[Any]):
    """Counts from a state on."""

    def __init__(self) -> None:
        self.number = 0

    def __iter__(self) -> Iterator[Any]:
        while self.number < 6:
            self.number += 1
            yield torch.tensor(self.number)

    def state_dict(self) -> dict[str, Any]:
        return {"number": self.number}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.number = state["number"]


def job_of(dataset: Any, num_workers: int = 2, **changes: Any) -> Job:
    is_iterable = isinstance(dataset, IterableDataset)
    made = Job(dataset, default_collate, None, is_iterable, True, False, 1, "sample", num_workers)
    return replace(made, wants_state=is_iterable, **changes)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def dispatcher(stack: ExitStack) -> DispatcherServer:
    server = DispatcherServer(DispatcherOptions(port=0, beat_s=BEAT_S))
    server.start()
    stack.callback(server.stop)
    return server


AddWorker = Callable[..., WorkerServer]
Open = Callable[..., RemoteCrew]


@pytest.fixture
def add_worker(stack: ExitStack, dispatcher: DispatcherServer) -> AddWorker:
    def add(**options: Any) -> WorkerServer:
        settings = {"port": 0, "num_threads": 2, "allow_code": True, **options}
        worker = WorkerServer(WorkerOptions(dispatcher.address, **settings))
        worker.start()
        stack.callback(worker.stop)
        return worker

    return add


@pytest.fixture
def open_one(stack: ExitStack, dispatcher: DispatcherServer) -> Open:
    def open_it(num_workers: int = 2, timeout_s: float = WAIT_S) -> RemoteCrew:
        crew = open_crew(dispatcher.address, CrewOptions(num_workers, timeout_s, "job"))
        stack.callback(crew.close)
        return crew

    return open_it


def events(crew: RemoteCrew, count: int) -> list[Event]:
    deadline_s = time.monotonic() + WAIT_S
    found: list[Event] = []
    while len(found) < count:
        event = crew.receive(deadline_s - time.monotonic())
        assert event is not None, [crew.waits_for(index) for index in range(crew.num_workers)]
        found.append(event)
    return found


def only(crew: RemoteCrew) -> Any:
    (event,) = events(crew, 1)
    return event


def values(crew: RemoteCrew, count: int) -> dict[int, list[Any]]:
    found = {}
    for _ in range(count):
        event = only(crew)
        assert isinstance(event, Made), event
        found[event.batch_index] = event.value.tolist()
    return found


def test_batches_of_several_iterations(add_worker: AddWorker, open_one: Open) -> None:
    workers = [add_worker(), add_worker()]
    crew = open_one()
    assert crew.num_workers == 2
    dataset = Rows()
    for run in range(3):
        dataset.offset = 100 * run
        crew.begin(job_of(dataset))
        for index in range(6):
            crew.submit(index % 2, Task(index, [index, index]))
        assert values(crew, 6) == {index: [[index + 100 * run]] * 2 for index in range(6)}
    assert crew.receive(0) is None
    assert [worker.stats().dataset_batches for worker in workers] == [9, 9]


def test_a_dataset_is_sent_when_it_has_changed_only(add_worker: AddWorker, open_one: Open) -> None:
    """Pain 29: an iteration over what the workers have sends nothing of it; what has changed they get."""
    worker = add_worker(memory_bytes=1 << 30)
    crew = open_one()
    dataset = Rows()
    sizes = []
    for change in (0, 0, 1):
        dataset.table[5] += change
        crew.begin(job_of(dataset))
        for index in range(2):
            crew.submit(index, Task(index, [1]))
        values(crew, 2)
        sizes.append(worker.stats().payload_bytes)
    assert sizes[0] == sizes[1]
    assert sizes[2] == 2 * sizes[0]


def test_an_iteration_that_goes_on_keeps_the_dataset(add_worker: AddWorker, open_one: Open) -> None:
    add_worker()
    crew = open_one(1)
    dataset = Rows()
    counts = []
    for goes_on in (False, True, False):
        crew.begin(job_of(dataset, 1, goes_on=goes_on))
        crew.submit(0, Task(0, [1, -4]))
        counts.append(values(crew, 1)[0][1][0])
    assert counts == [2, 4, 2]


def test_what_was_asked_for_before_is_not_told(add_worker: AddWorker, open_one: Open) -> None:
    add_worker()
    crew = open_one(1)
    for run in range(4):
        crew.begin(job_of(Rows(), 1))
        for index in range(8):
            crew.submit(0, Task(index, [index + run]))
        assert values(crew, 2) == {0: [[run]], 1: [[1 + run]]}


def test_errors_of_users_code(add_worker: AddWorker, open_one: Open) -> None:
    add_worker()
    crew = open_one(1)
    crew.begin(job_of(Rows(), 1))
    crew.submit(0, Task(3, [1, -2]))
    crew.submit(0, Task(4, [1]))
    event = only(crew)
    assert isinstance(event, Failed)
    assert event.batch_index == 3
    assert isinstance(event.error, KeyError)
    assert any("sample index -2" in note for note in event.error.__notes__)
    assert values(crew, 1) == {4: [[1]]}


def test_a_process_that_dies_is_replaced(add_worker: AddWorker, open_one: Open) -> None:
    worker = add_worker()
    crew = open_one(2)
    crew.begin(job_of(Rows()))
    crew.submit(1, Task(0, [-1]))
    crew.submit(1, Task(1, [7]))
    event = only(crew)
    assert isinstance(event, Lost)
    assert event.worker_index == 1
    assert event.is_fault
    for part in ("worker 1 (pid ", worker.worker_id, "SIGKILL", "batch 0 (samples -1)", "1 more to do"):
        assert part in event.cause
    crew.submit(1, Task(1, [7]))  # to nobody
    crew.replace(1)
    crew.submit(1, Task(2, [8]))
    assert values(crew, 1) == {2: [[8]]}


def test_a_worker_that_drains_hands_over_without_blame(add_worker: AddWorker, open_one: Open) -> None:
    first = add_worker()
    crew = open_one(1)
    crew.begin(job_of(Rows(), 1))
    crew.submit(0, Task(0, [1]))
    assert values(crew, 1) == {0: [[1]]}
    second = add_worker()
    first.drain()
    event = only(crew)
    assert isinstance(event, Lost)
    assert not event.is_fault
    assert first.worker_id in event.cause
    crew.replace(0)
    crew.submit(0, Task(1, [2]))
    assert values(crew, 1) == {1: [[2]]}
    assert second.stats().dataset_batches == 1
    assert first.wait() == 0


def test_an_iterable_dataset_goes_on_from_a_state(add_worker: AddWorker, open_one: Open) -> None:
    add_worker()
    crew = open_one(1)
    crew.begin(job_of(Counter(), 1))
    crew.submit(0, Task(0, [None, None]))
    event = only(crew)
    assert event.value.tolist() == [1, 2]
    crew.replace(0, event.state)
    for index in (1, 2, 3):
        crew.submit(0, Task(index, [None, None]))
    assert values(crew, 2) == {1: [3, 4], 2: [5, 6]}
    event = only(crew)
    assert isinstance(event, Ended)
    assert event.batch_index == 3


def test_what_cannot_be_sent_is_named_at_once(add_worker: AddWorker, open_one: Open) -> None:
    add_worker()
    crew = open_one(1)
    dataset: Any = Rows()
    dataset.lock = threading.Lock()
    with pytest.raises(SpecError, match=r"dataset\.lock"):
        crew.begin(job_of(dataset, 1))


def test_what_a_worker_is_doing(add_worker: AddWorker, open_one: Open) -> None:
    add_worker()
    crew = open_one(1)
    crew.begin(job_of(Rows(), 1))
    assert crew.is_active(0)
    crew.submit(0, Task(0, [-3]))
    until("the stack is told", lambda: "__getitem__" in crew.waits_for(0), WAIT_S)
    assert "with batch 0 (samples -3) in hand" in crew.waits_for(0)
    crew.is_active(0)
    until("it does nothing", lambda: not crew.is_active(0), WAIT_S)


def test_without_a_worker_that_runs_code(add_worker: AddWorker, open_one: Open) -> None:
    add_worker(allow_code=False)
    crew = open_one(1, 1.5)
    crew.begin(job_of(Rows(), 1))
    with pytest.raises(SpecError, match="--allow-code"):
        crew.receive(WAIT_S)


def test_without_a_worker(open_one: Open) -> None:
    crew = open_one(1, 0.5)
    crew.begin(job_of(Rows(), 1))
    assert "no worker is there" in crew.waits_for(0) or "looks for a place" in crew.waits_for(0)
    with pytest.raises(StallError, match="stoker worker"):
        crew.receive(WAIT_S)


def test_without_a_service() -> None:
    with pytest.raises(SpecError, match="stoker://"):
        open_crew("stoker://", CrewOptions(1, 1.0, "job"))
    with pytest.raises(ServiceError, match="no service answers"):
        open_crew(f"stoker://127.0.0.1:{free_port()}", CrewOptions(1, 0.5, "job"))


def test_workers_that_are_full_are_passed_by(add_worker: AddWorker, open_one: Open) -> None:
    """Where the dispatcher's choice has no room, one that has is found."""
    full, free = add_worker(max_processes=1), add_worker(max_processes=3)
    crew = open_one(4)
    crew.begin(job_of(Rows(), 4))
    for index in range(4):
        crew.submit(index, Task(index, [index]))
    assert values(crew, 4) == {index: [[index]] for index in range(4)}
    assert (full.stats().num_processes, free.stats().num_processes) == (1, 3)


def test_closing_ends_the_processes(add_worker: AddWorker, open_one: Open) -> None:
    worker = add_worker()
    crew = open_one()
    crew.begin(job_of(Rows()))
    crew.submit(0, Task(0, [-3]))
    until("both have a process", lambda: worker.stats().num_processes == 2, WAIT_S)
    begun_s = time.monotonic()
    crew.close()
    crew.close()
    assert time.monotonic() - begun_s < 4
    with pytest.raises(ClosedError):
        crew.receive(0)
    until("none is left", lambda: worker.stats().num_processes == 0, WAIT_S)


def test_a_crew_that_is_forgotten_ends_its_processes(add_worker: AddWorker, dispatcher: DispatcherServer) -> None:
    worker = add_worker()
    crew = open_crew(dispatcher.address, CrewOptions(1, WAIT_S, "job"))
    crew.begin(job_of(Rows(), 1))
    until("it has a process", lambda: worker.stats().num_processes == 1, WAIT_S)
    del crew
    until("none is left", lambda: worker.stats().num_processes == 0, WAIT_S)
