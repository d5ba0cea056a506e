"""Workers that are threads of the trainer's process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import default_collate

from stoker.compat.crew import Failed, Job, Made, Task
from stoker.compat.thread_crew import ThreadCrew
from stoker.errors import SpecError

WAIT_S = 20.0


def job_of(dataset: Any, **more: Any) -> Job:
    options: dict[str, Any] = {
        "collate_fn": list,
        "worker_init_fn": None,
        "is_iterable": False,
        "auto_collation": True,
        "drop_last": False,
        "base_seed": 0,
        "seeding": "worker",
        "num_workers": 2,
    }
    return Job(dataset, **{**options, **more})


@pytest.fixture
def crew() -> Iterator[ThreadCrew]:
    crew = ThreadCrew(2)
    yield crew
    crew.close()


class Gate:
    """A dataset whose samples wait until they are let through."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()

    def __getitem__(self, key: int) -> int:
        self.entered.release()
        assert self.open.wait(WAIT_S)
        return key


def test_each_worker_makes_its_tasks_in_order(crew: ThreadCrew) -> None:
    crew.begin(job_of([10, 11, 12, 13]))
    crew.submit(0, Task(0, [0, 1]))
    crew.submit(0, Task(1, [2, 3]))
    assert [crew.receive(WAIT_S), crew.receive(WAIT_S)] == [Made(0, 0, [10, 11]), Made(0, 1, [12, 13])]
    assert crew.receive(0) is None


def test_workers_fetch_at_the_same_time(crew: ThreadCrew) -> None:
    gate = Gate()
    crew.begin(job_of(gate))
    crew.submit(0, Task(0, [0]))
    crew.submit(1, Task(1, [1]))
    assert gate.entered.acquire(timeout=WAIT_S)
    assert gate.entered.acquire(timeout=WAIT_S), "the second waits for the first"
    assert "__getitem__" in crew.waits_for(0)
    gate.open.set()
    found = [crew.receive(WAIT_S), crew.receive(WAIT_S)]
    assert sorted(event.value for event in found if isinstance(event, Made)) == [[0], [1]]


def test_what_an_earlier_iteration_asked_for_is_not_told(crew: ThreadCrew) -> None:
    gate = Gate()
    crew.begin(job_of(gate))
    crew.submit(0, Task(0, [0]))
    crew.submit(0, Task(1, [1]))
    assert gate.entered.acquire(timeout=WAIT_S)
    crew.begin(job_of(["new"]))
    crew.submit(0, Task(0, [0]))
    gate.open.set()
    assert crew.receive(WAIT_S) == Made(0, 0, ["new"])
    assert crew.receive(0) is None
    assert not gate.entered.acquire(blocking=False), "the second task was fetched in vain"


def test_a_batch_that_is_not_wanted_any_more_ends_with_the_sample_in_hand(crew: ThreadCrew) -> None:
    gate = Gate()
    crew.begin(job_of(gate))
    crew.submit(0, Task(0, [0, 1]))
    assert gate.entered.acquire(timeout=WAIT_S)
    crew.begin(job_of(["new"]))
    crew.submit(0, Task(0, [0]))
    gate.open.set()
    assert crew.receive(WAIT_S) == Made(0, 0, ["new"])
    assert not gate.entered.acquire(blocking=False), "the second sample was fetched in vain"


def test_a_dataset_may_fetch_a_batch_at_once(crew: ThreadCrew) -> None:
    class Together:
        def __getitems__(self, keys: list[int]) -> list[int]:
            return [key * 10 for key in keys]

    crew.begin(job_of(Together()))
    crew.submit(0, Task(0, [1, 2]))
    assert crew.receive(WAIT_S) == Made(0, 0, [10, 20])


def test_default_collate_gives_what_torchs_gives(crew: ThreadCrew) -> None:
    samples = [{"image": torch.full((100, 100), float(i)), "label": i, "name": str(i)} for i in range(3)]
    crew.begin(job_of(samples, collate_fn=default_collate))
    crew.submit(0, Task(0, [2, 1]))
    event = crew.receive(WAIT_S)
    assert isinstance(event, Made)
    expected = default_collate([samples[2], samples[1]])
    assert torch.equal(event.value["image"], expected["image"])
    assert torch.equal(event.value["label"], expected["label"])
    assert event.value["name"] == expected["name"]


def test_an_error_comes_with_its_sample(crew: ThreadCrew) -> None:
    crew.begin(job_of({"good": 1}))
    crew.submit(1, Task(3, ["good", "bad"]))
    event = crew.receive(WAIT_S)
    assert isinstance(event, Failed)
    assert isinstance(event.error, KeyError)
    assert event.error.args == ("bad",)
    assert "'bad'" in "".join(event.error.__notes__)


@pytest.mark.parametrize("more", [{"is_iterable": True}, {"seeding": "sample"}, {"worker_init_fn": print}])
def test_what_threads_cannot_do_is_refused(crew: ThreadCrew, more: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="worker_method='thread'"):
        crew.begin(job_of([1], **more))


@pytest.mark.parametrize("how", ["closed", "forgotten"])
def test_closed_and_forgotten_threads_end(how: str) -> None:
    before = set(threading.enumerate())
    crew = ThreadCrew(3)
    crew.begin(job_of([1]))
    threads = set(threading.enumerate()) - before
    assert len(threads) == 3
    if how == "closed":
        crew.close()
        crew.close()
    del crew
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
