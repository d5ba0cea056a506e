"""A crew of processes: what comes back, what is kept, how workers end."""

from __future__ import annotations

import gc
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from stoker.compat.crew import Ended, Event, Failed, Job, Lost, Made, Seeding, Task
from stoker.compat.process_crew import ProcessCrew
from stoker.errors import ClosedError, SpecError
from stoker.processes.channel import wait
from stoker.processes.launch import StartMethod
from support import crew_datasets
from support.crew_datasets import Acts, Broken, Counting, Sharing, Values, as_it_is

_DEADLINE_S = 60.0
_METHODS: list[StartMethod] = ["forkserver", "spawn", "fork"]


def _job(
    dataset: Any,
    *,
    collate_fn: Callable[[Any], Any] = as_it_is,
    worker_init_fn: Callable[[int], None] | None = None,
    is_iterable: bool = False,
    auto_collation: bool = True,
    base_seed: int = 5,
    seeding: Seeding = "worker",
    num_workers: int = 1,
    goes_on: bool = False,
    wants_state: bool = False,
    states: tuple[Any, ...] = (),
) -> Job:
    return Job(
        dataset=dataset,
        collate_fn=collate_fn,
        worker_init_fn=worker_init_fn,
        is_iterable=is_iterable,
        auto_collation=auto_collation,
        drop_last=False,
        base_seed=base_seed,
        seeding=seeding,
        num_workers=num_workers,
        goes_on=goes_on,
        wants_state=wants_state,
        states=states,
    )


@pytest.fixture(scope="module")
def worker() -> Iterator[ProcessCrew]:
    """One worker for all tests that leave it in order."""
    crew = ProcessCrew(1)
    yield crew
    crew.close()


@pytest.fixture
def crew() -> Iterator[ProcessCrew]:
    """Two workers of the test's own."""
    crew = ProcessCrew(2)
    yield crew
    crew.close()


def _next(crew: ProcessCrew) -> Event:
    event = crew.receive(_DEADLINE_S)
    assert event is not None, crew.waits_for(0)
    return event


def _one_batch(crew: ProcessCrew, keys: Any, worker_index: int = 0, batch_index: int = 0) -> Event:
    crew.submit(worker_index, Task(batch_index, keys))
    return _next(crew)


def _value(event: Event) -> Any:
    assert isinstance(event, Made), event
    return event.value


def _error(event: Event) -> BaseException:
    assert isinstance(event, Failed), event
    return event.error


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not appear"
        os.sched_yield()


def _has_ended(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        os.sched_yield()
    return False


# -- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", _METHODS)
def test_batches_come_from_every_worker(method: StartMethod) -> None:
    crew = ProcessCrew(2, method=method)
    try:
        for _ in range(2):
            crew.begin(_job(Values(), collate_fn=default_collate, num_workers=2))
            for batch_index in range(6):
                crew.submit(batch_index % 2, Task(batch_index, [batch_index, 100]))
            events = [_next(crew) for _ in range(6)]
            assert all(isinstance(event, Made) for event in events), events
            values = {event.batch_index: _value(event) for event in events if isinstance(event, Made)}
            assert sorted(values) == list(range(6))
            for batch_index, value in values.items():
                assert torch.equal(value, torch.tensor([[batch_index], [100.0]]))
            for worker_index in range(2):
                theirs = [event for event in events if event.worker_index == worker_index]
                assert [event.batch_index for event in theirs if isinstance(event, Made)] == [
                    worker_index,
                    worker_index + 2,
                    worker_index + 4,
                ]
            assert crew.receive(0.0) is None
    finally:
        crew.close()


def test_samples_without_collation_and_keys_of_any_kind(worker: ProcessCrew) -> None:
    worker.begin(_job(Acts(), auto_collation=False))
    for key in ("x", 3, (1, "y"), None, np.int64(4), frozenset([1])):
        assert _value(_one_batch(worker, key)) == key
    many = list(range(200_000))
    worker.begin(_job(Acts(), collate_fn=len))
    assert _value(_one_batch(worker, many)) == 200_000


def test_300_megabytes_come_whole(worker: ProcessCrew) -> None:
    num_values = 75_000_000
    worker.begin(_job(Values(num_values), collate_fn=_first))
    for key in (3, 4):
        value = _value(_one_batch(worker, [key]))
        assert value.shape == (num_values,)
        assert value[0] == value[-1] == key
        del value


def _first(samples: list[Any]) -> Any:
    return samples[0]


def test_memory_that_was_dropped_is_used_again(worker: ProcessCrew) -> None:
    worker.begin(_job(Values(100_000), collate_fn=default_collate))
    addresses = [_value(_one_batch(worker, [key])).data_ptr() for key in range(20)]
    assert len(set(addresses)) <= 4


def test_what_is_kept_is_not_written_over(worker: ProcessCrew) -> None:
    worker.begin(_job(Values(100_000), collate_fn=default_collate))
    kept = [_value(_one_batch(worker, [key])) for key in range(20)]
    worker.begin(_job(Values(100_000), collate_fn=default_collate))
    kept += [_value(_one_batch(worker, [key])) for key in range(20, 40)]
    for key, value in enumerate(kept):
        assert value.min() == value.max() == key


def test_2000_kept_batches_hold_no_descriptors(worker: ProcessCrew) -> None:
    worker.begin(_job(Values(5000), collate_fn=default_collate))
    kept = [_value(_one_batch(worker, [0]))]
    gc.collect()  # what other tests left would otherwise be let go of meanwhile
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # the list of names
    kept += [_value(_one_batch(worker, [key])) for key in range(1, 2000)]
    assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208  # fewer: threads that other tests left may end
    assert all(value[0, 0] == key for key, value in enumerate(kept))


def test_batches_outlive_the_crew() -> None:
    crew = ProcessCrew(1)
    crew.begin(_job(Values(100_000), collate_fn=default_collate))
    value = _value(_one_batch(crew, [7]))
    crew.close()
    del crew
    gc.collect()
    value += 1
    assert value.min() == value.max() == 8


def test_a_result_that_cannot_be_sent_is_named(worker: ProcessCrew) -> None:
    worker.begin(_job(Acts()))
    error = _error(_one_batch(worker, [1, "lock"], batch_index=4))
    assert type(error) is TypeError
    assert "_thread.lock" in str(error)
    assert error.__notes__[0].startswith(
        "batch 4 (samples 1, 'lock'), a list as collate_fn returned it, cannot be sent"
    )
    assert _value(_one_batch(worker, [2])) == [2]


def test_a_result_that_cannot_be_read_is_a_failure(worker: ProcessCrew) -> None:
    worker.begin(_job(Values(), collate_fn=crew_datasets.unreadable))
    error = _error(_one_batch(worker, [1], batch_index=4))
    assert isinstance(error, OSError)
    assert "batch 4 of worker 0" in error.__notes__[0]


# -- iterations ------------------------------------------------------------------------------------------------------


def test_each_iteration_has_a_new_copy_of_the_dataset_and_going_on_keeps_it(worker: ProcessCrew) -> None:
    dataset = Acts()
    worker.begin(_job(dataset, collate_fn=_first))
    assert _value(_one_batch(worker, ["counter"])) == 1
    assert _value(_one_batch(worker, ["counter"])) == 2
    worker.begin(_job(dataset, collate_fn=_first))
    assert _value(_one_batch(worker, ["counter"])) == 1
    worker.begin(_job(dataset, collate_fn=_first, goes_on=True))
    assert _value(_one_batch(worker, ["counter"])) == 2
    assert dataset.counter == 0


def test_generators_are_seeded_anew_unless_it_goes_on(worker: ProcessCrew) -> None:
    job = _job(Acts(), collate_fn=_first)
    worker.begin(job)
    first, second = _value(_one_batch(worker, ["draw"])), _value(_one_batch(worker, ["draw"]))
    assert first != second
    worker.begin(job)
    assert _value(_one_batch(worker, ["draw"])) == first
    worker.begin(_job(Acts(), collate_fn=_first, goes_on=True))
    assert _value(_one_batch(worker, ["draw"])) == second


def test_generators_seeded_by_sample_do_not_depend_on_the_worker(crew: ProcessCrew) -> None:
    crew.begin(_job(Acts(), collate_fn=_first, seeding="sample", num_workers=2))
    draws = [_value(_one_batch(crew, ["draw"], worker_index, batch_index=3)) for worker_index in (0, 1, 0)]
    assert draws[0] == draws[1] == draws[2]


@pytest.mark.parametrize("method", _METHODS)
def test_a_changed_attribute_is_seen_in_the_next_iteration(method: StartMethod) -> None:
    dataset = Values()
    crew = ProcessCrew(1, method=method)
    try:
        for offset in (0, 10, 20):
            dataset.offset = offset
            crew.begin(_job(dataset, collate_fn=_first))
            assert _value(_one_batch(crew, [1])) == 1 + offset
    finally:
        crew.close()


def test_what_has_not_changed_is_packed_once_and_sent_once_to_each(crew: ProcessCrew) -> None:
    dataset: Any = Values()
    dataset.payload = np.arange(5_000_000)
    for _ in range(3):
        crew.begin(_job(dataset, num_workers=2))
        assert _value(_one_batch(crew, [1], 0)) == _value(_one_batch(crew, [1], 1))
    crew.begin(_job(dataset, num_workers=2, goes_on=True))
    assert crew._cargo_version == 1
    dataset.payload[-1] = 0
    crew.begin(_job(dataset, num_workers=2))
    assert crew._cargo_version == 2


def test_tasks_of_an_earlier_iteration_are_dropped(worker: ProcessCrew) -> None:
    worker.begin(_job(Values(100_000), collate_fn=default_collate))
    for batch_index in range(50):
        worker.submit(0, Task(batch_index, [batch_index]))
    _value(_next(worker))
    worker.begin(_job(Values(100_000), collate_fn=default_collate))
    event = _one_batch(worker, [77], batch_index=1)
    assert _value(event)[0, 0] == 77
    assert worker.receive(0.0) is None


def test_beginning_does_not_wait_for_a_busy_worker(crew: ProcessCrew, tmp_path: Path) -> None:
    big: Any = Acts(str(tmp_path))
    big.payload = b"x" * 3_000_000
    crew.begin(_job(big, num_workers=2))
    crew.submit(0, Task(0, [("wait", "free")]))
    _wait_for(tmp_path / "free.begun")
    for _ in range(5):
        crew.begin(_job(big, num_workers=2))
        crew.submit(0, Task(0, list(range(50_000))))
    assert _value(_one_batch(crew, [5], 1, 1)) == [5]
    (tmp_path / "free").touch()
    event = _next(crew)
    assert len(_value(event)) == 50_000


def test_workers_are_kept_over_iterations(worker: ProcessCrew) -> None:
    pids = set()
    for _ in range(3):
        worker.begin(_job(Acts(), collate_fn=_first))
        pids.add(_value(_one_batch(worker, ["pid"])))
    assert len(pids) == 1
    assert os.getpid() not in pids


def testworker_thread_for_torch_in_a_worker(worker: ProcessCrew) -> None:
    worker.begin(_job(Acts(), collate_fn=_first))
    assert _value(_one_batch(worker, ["threads"])) == 1


# -- iterable datasets -----------------------------------------------------------------------------------------------


def test_an_iterable_dataset_ends_for_each_task(worker: ProcessCrew) -> None:
    worker.begin(_job(Counting(4), is_iterable=True))
    events = [_one_batch(worker, [None] * 3, batch_index=index) for index in range(4)]
    assert [event.value for event in events if isinstance(event, Made)] == [[0, 1, 2], [3]]
    assert [event.batch_index for event in events if isinstance(event, Ended)] == [2, 3]
    worker.begin(_job(Counting(4), is_iterable=True, goes_on=True))
    assert _value(_one_batch(worker, [None] * 3)) == [0, 1, 2]


def test_whether_users_code_knows_its_worker_is_told(crew: ProcessCrew) -> None:
    crew.begin(_job(Counting(4), is_iterable=True, num_workers=2))
    event = _one_batch(crew, [None] * 3, 1)
    assert isinstance(event, Made)
    assert not event.knows_workers
    for goes_on in (False, True):
        crew.begin(_job(Sharing(4), is_iterable=True, num_workers=2, goes_on=goes_on))
        event = _one_batch(crew, [None] * 3, 1)
        assert isinstance(event, Made)
        assert event.knows_workers
        assert event.value == [1, 3]
        ended = _one_batch(crew, [None] * 3, 1, 1)
        assert isinstance(ended, Ended)
        assert ended.knows_workers
    crew.begin(_job(Counting(4), is_iterable=True, num_workers=2, worker_init_fn=_asks))
    event = _one_batch(crew, [None] * 3, 1)
    assert isinstance(event, Made)
    assert event.knows_workers


def _asks(worker_index: int) -> None:
    info = torch.utils.data.get_worker_info()
    assert info is not None
    assert info.id == worker_index
    assert info.num_workers == 2
    assert info.seed == 5 + worker_index
    assert isinstance(info.dataset, Counting)


def test_forked_workers_tell_whether_they_know(crew: ProcessCrew) -> None:
    forked = ProcessCrew(1, method="fork")
    try:
        forked.begin(_job(Sharing(4), is_iterable=True))
        event = _one_batch(forked, [None] * 4)
        assert isinstance(event, Made)
        assert event.knows_workers
    finally:
        forked.close()


def test_an_iterable_dataset_goes_on_from_a_state(worker: ProcessCrew) -> None:
    worker.begin(_job(Counting(9), is_iterable=True, wants_state=True))
    event = _one_batch(worker, [None] * 4)
    assert isinstance(event, Made)
    state = event.state
    worker.begin(_job(Counting(9), is_iterable=True, states=(state,)))
    event = _one_batch(worker, [None] * 4)
    assert isinstance(event, Made)
    assert event.value == [4, 5, 6, 7]
    assert event.state is None


# -- failures --------------------------------------------------------------------------------------------------------


def test_an_error_comes_with_type_args_sample_and_trace(worker: ProcessCrew) -> None:
    worker.begin(_job(Acts()))
    error = _error(_one_batch(worker, [1, "missing"], batch_index=6))
    assert type(error) is KeyError
    assert error.args == ("missing",)
    assert error.__notes__[0] == "sample index 'missing' (row 1 of batch 6)"
    assert error.__notes__[1].startswith("In worker 0 (pid ")
    assert 'raise KeyError("missing")' in error.__notes__[1]
    assert _value(_one_batch(worker, [2])) == [2]


def test_an_error_class_of_the_main_module_keeps_its_identity(worker: ProcessCrew) -> None:
    program = """
class OddError(ValueError):
    def __init__(self, a, b):
        super().__init__(a)
        self.b = b

class Dataset:
    def __getitem__(self, key):
        raise OddError(key, self)
"""
    main: Any = types.ModuleType("__main__")
    before = sys.modules["__main__"]
    sys.modules["__main__"] = main
    try:
        exec(program, main.__dict__)  # as a script would be
        worker.begin(_job(main.Dataset()))
        error = _error(_one_batch(worker, [3]))
    finally:
        sys.modules["__main__"] = before
    assert type(error) is main.OddError
    assert error.args == (3,)
    assert type(vars(error)["b"]) is main.Dataset


def test_a_keyboard_interrupt_of_users_code_is_a_failure(worker: ProcessCrew) -> None:
    worker.begin(_job(Acts()))
    assert type(_error(_one_batch(worker, ["interrupt"]))) is KeyboardInterrupt
    assert _value(_one_batch(worker, [2])) == [2]


def test_what_fails_at_the_start_is_told_at_every_task(worker: ProcessCrew) -> None:
    for job in (_job(Broken()), _job(Values(), worker_init_fn=_fails), _job(5, is_iterable=True)):
        worker.begin(job)
        for batch_index in range(2):
            error = _error(_one_batch(worker, [1], batch_index=batch_index))
            assert "while starting" in error.__notes__[0]
    worker.begin(_job(Acts()))
    assert _value(_one_batch(worker, [2])) == [2]


def _fails(worker_index: int) -> None:
    raise ValueError(f"no worker {worker_index} here")


def test_what_cannot_be_sent_is_named_at_once_and_leaves_the_crew_as_it_was(worker: ProcessCrew) -> None:
    dataset: Any = Values()
    dataset.lock = threading.Lock()
    worker.begin(_job(Acts()))
    with pytest.raises(SpecError, match=r"dataset\.lock"):
        worker.begin(_job(dataset))
    assert _value(_one_batch(worker, [2])) == [2]


def test_forked_workers_inherit_what_cannot_be_sent() -> None:
    dataset: Any = Acts()
    dataset.lock = threading.Lock()
    crew = ProcessCrew(1, method="fork")
    try:
        for _ in range(2):
            crew.begin(_job(dataset, collate_fn=lambda samples: samples))
            assert _value(_one_batch(crew, ["counter"])) == [1]
        crew.begin(_job(dataset, goes_on=True))
        assert _value(_one_batch(crew, ["counter"])) == [2]
    finally:
        crew.close()


# -- lost workers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key, ending",
    [
        (("exit", 3), "exited with code 3"),
        (("exit", 0), "exited with code 0"),
        (("kill", signal.SIGKILL), "was killed by signal SIGKILL"),
        (("kill", signal.SIGSEGV), "was killed by signal SIGSEGV"),
    ],
)
def test_a_worker_that_ends_is_lost_with_a_cause(
    crew: ProcessCrew, capfd: pytest.CaptureFixture[str], key: Any, ending: str
) -> None:
    crew.begin(_job(Acts(), num_workers=2))
    pid = _value(_one_batch(crew, ["pid"], 1))[0]
    for batch_index, keys in enumerate([[1, 2], [3, key, 4], [5], [6]]):
        crew.submit(1, Task(batch_index, keys))
    events = [_next(crew), _next(crew)]
    assert _value(events[0]) == [1, 2]
    lost = events[1]
    assert isinstance(lost, Lost)
    assert lost.worker_index == 1
    assert lost.cause.startswith(f"worker 1 (pid {pid}) {ending}")
    assert lost.cause.endswith(f", with batch 1 (samples 3, {key!r}, 4) in hand and 2 more to do")
    assert "gone" in crew.waits_for(1)
    crew.submit(1, Task(4, [7]))  # nobody is there
    assert _value(_one_batch(crew, [8], 0, 5)) == [8]
    crew.replace(1)
    assert _value(_one_batch(crew, [9], 1, 6)) == [9]
    assert _value(_one_batch(crew, ["pid"], 1, 7)) != [pid]


def test_a_replaced_worker_goes_on_from_its_state(crew: ProcessCrew) -> None:
    job = _job(Counting(9), is_iterable=True, wants_state=True, num_workers=2)
    crew.begin(job)
    event = _one_batch(crew, [None] * 4)
    assert isinstance(event, Made)
    os.kill(_pid_of(crew, 0), signal.SIGKILL)
    assert isinstance(_next(crew), Lost)
    crew.replace(0, event.state)
    assert _value(_one_batch(crew, [None] * 4)) == [4, 5, 6, 7]


def _pid_of(crew: ProcessCrew, worker_index: int) -> int:
    return crew._members[worker_index].process.pid


def test_a_worker_that_died_between_iterations_is_replaced_unseen(crew: ProcessCrew) -> None:
    crew.begin(_job(Acts(), num_workers=2))
    for worker_index in range(2):
        _value(_one_batch(crew, [1], worker_index))
    for goes_on in (False, True):
        pid = _pid_of(crew, 1)
        os.kill(pid, signal.SIGKILL)
        assert _has_ended(pid)
        crew.begin(_job(Acts(), num_workers=2, goes_on=goes_on))
        assert _value(_one_batch(crew, [7], 1)) == [7]


def test_a_worker_killed_while_it_begins_is_lost() -> None:
    crew = ProcessCrew(1)
    try:
        crew.begin(_job(Acts(), worker_init_fn=_dies))
        crew.submit(0, Task(0, [1]))
        lost = _next(crew)
        assert isinstance(lost, Lost)
        assert "SIGKILL" in lost.cause
        assert "batch 0" in lost.cause
    finally:
        crew.close()


def _dies(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_killed_in_the_middle_of_a_message_is_lost(crew: ProcessCrew) -> None:
    crew.begin(_job(Acts(), collate_fn=_much_if_one, num_workers=2))
    assert _value(_one_batch(crew, [0])) == []
    crew.submit(0, Task(1, [1]))
    member = crew._members[0]
    assert wait([member.channel], _DEADLINE_S)
    member.process.kill()  # it cannot have sent all that while nobody reads
    lost = _next(crew)
    assert isinstance(lost, Lost)
    assert "SIGKILL" in lost.cause
    assert "batch 1 (samples 1) in hand" in lost.cause


def _much_if_one(samples: list[int]) -> Any:
    return [f"{i:1000}" for i in range(samples[0] * 100_000)]


@pytest.mark.parametrize("seed", range(6))
def test_no_batch_is_lost_when_workers_are_killed_at_any_time(crew: ProcessCrew, seed: int) -> None:
    chance = random.Random(seed)
    crew.begin(_job(Values(20_000), collate_fn=default_collate, num_workers=2))
    todo = {worker_index: {index: [index] for index in range(worker_index, 60, 2)} for worker_index in range(2)}
    for worker_index, tasks in todo.items():
        for batch_index, keys in tasks.items():
            crew.submit(worker_index, Task(batch_index, keys))
    made: dict[int, float] = {}
    num_kills = 0
    while any(todo.values()):
        if num_kills < 6 and chance.random() < 0.2:
            crew._members[chance.randrange(2)].process.kill()
            num_kills += 1
        event = _next(crew)
        if isinstance(event, Lost):
            assert "SIGKILL" in event.cause, seed
            crew.replace(event.worker_index)
            for batch_index, keys in todo[event.worker_index].items():
                crew.submit(event.worker_index, Task(batch_index, keys))
        else:
            assert isinstance(event, Made), (seed, event)
            del todo[event.worker_index][event.batch_index]
            made[event.batch_index] = float(event.value.mean())
    assert made == {batch_index: float(batch_index) for batch_index in range(60)}, seed


def test_a_stopped_worker_is_found_out(crew: ProcessCrew, tmp_path: Path) -> None:
    crew.begin(_job(Acts(str(tmp_path)), num_workers=2))
    crew.submit(0, Task(3, [("spin", "free")]))
    assert crew.is_active(0)  # not to be told yet
    deadline = time.monotonic() + _DEADLINE_S
    while not (crew.is_active(0) and "crew_datasets.py" in crew.waits_for(0)):  # before, it reads its dataset
        assert time.monotonic() < deadline
        assert crew.receive(0.05) is None
    os.kill(_pid_of(crew, 0), signal.SIGSTOP)
    stopped = "is stopped, by SIGSTOP or a debugger, with batch 3 (samples ('spin', 'free')) in hand"
    while stopped not in crew.waits_for(0):
        assert time.monotonic() < deadline
    crew.is_active(0)
    assert not crew.is_active(0)
    os.kill(_pid_of(crew, 0), signal.SIGCONT)
    (tmp_path / "free").touch()
    assert _value(_next(crew)) == ["spun"]
    assert "has nothing to do" in crew.waits_for(0)


# -- ends ------------------------------------------------------------------------------------------------------------


def test_closing_ends_busy_and_stopped_workers_within_two_seconds(tmp_path: Path) -> None:
    crew = ProcessCrew(3)
    crew.begin(_job(Acts(str(tmp_path)), num_workers=3))
    crew.submit(0, Task(0, [("wait", "never")]))
    crew.submit(1, Task(1, [("spin", "never")]))
    _wait_for(tmp_path / "never.begun")
    pids = [_pid_of(crew, worker_index) for worker_index in range(3)]
    os.kill(pids[2], signal.SIGSTOP)
    begun = time.monotonic()
    crew.close()
    assert time.monotonic() - begun < 2.0
    assert all(_has_ended(pid) for pid in pids)
    crew.close()
    with pytest.raises(ClosedError):
        crew.begin(_job(Acts()))
    with pytest.raises(ClosedError):
        crew.submit(0, Task(0, []))
    with pytest.raises(ClosedError):
        crew.receive(0.0)


def test_closing_from_another_thread_ends_a_wait() -> None:
    crew = ProcessCrew(1)
    crew.begin(_job(Acts()))
    assert _value(_one_batch(crew, [1])) == [1]
    closing = threading.Thread(target=crew.close)
    closing.start()
    with pytest.raises(ClosedError):
        crew.receive(_DEADLINE_S)
    closing.join()


def test_a_worker_gives_the_memory_of_earlier_datasets_back(worker: ProcessCrew) -> None:
    dataset: Any = Acts()
    used = []
    for epoch in range(8):
        dataset.payload = [f"{epoch} {i:1000}" for i in range(20_000)]
        worker.begin(_job(dataset))
        assert _value(_one_batch(worker, [1])) == [1]
        statm = Path(f"/proc/{_pid_of(worker, 0)}/statm").read_text(encoding="ascii")
        used.append(int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    assert max(used[4:]) - used[2] < 20_000_000, used


def test_a_forgotten_crew_ends_its_workers() -> None:
    crew = ProcessCrew(1)
    crew.begin(_job(Acts(), collate_fn=_first))
    pid = _value(_one_batch(crew, ["pid"]))
    del crew
    gc.collect()
    assert _has_ended(pid)


_TRAINER = """
    import os, signal, sys
    sys.path[:0] = {path!r}
    from stoker.compat.crew import Job, Task
    from stoker.compat.process_crew import ProcessCrew
    from support.crew_datasets import Acts, as_it_is

    crew = ProcessCrew(1)
    crew.begin(Job(Acts({folder!r}), as_it_is, None, False, True, False, 5, "worker", 1))
    for index, keys in enumerate([["pid"], [("wait", "never")]]):
        crew.submit(0, Task(index, keys))
    print(crew.receive(60).value[0], flush=True)
    while not os.path.exists({folder!r} + "/never.begun"):
        os.sched_yield()
    {end}
"""


@pytest.mark.parametrize("end", ["raise ValueError", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_worker_does_not_outlive_its_trainer(end: str, tmp_path: Path) -> None:
    program = textwrap.dedent(_TRAINER).format(path=sys.path, folder=str(tmp_path), end=end)
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=_DEADLINE_S, check=False, text=True
    )
    assert ran.stdout.strip().isdecimal(), ran.stderr
    assert _has_ended(int(ran.stdout))
    assert ("ValueError" in ran.stderr) == ("ValueError" in end)
    assert "Exception ignored" not in ran.stderr


def test_a_closed_crew_leaves_no_descriptors() -> None:
    def once() -> None:
        crew = ProcessCrew(2)
        crew.begin(_job(Values(100_000), num_workers=2))
        _value(_one_batch(crew, [1], 1))
        crew.close()

    once()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # the list of names
    once()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_forked_process_neither_uses_nor_breaks_the_workers(worker: ProcessCrew) -> None:
    worker.begin(_job(Acts()))
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = "nothing"
        try:
            worker.receive(0.0)
        except ClosedError as error:
            said = str(error)
        worker.close()
        os.write(write, pickle.dumps(said))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pickle.loads(pipe.read())
    os.waitpid(pid, 0)
    assert f"belong to process {os.getpid()}" in said
    assert _value(_one_batch(worker, [2])) == [2]


def test_what_a_dataset_prints_does_no_harm(worker: ProcessCrew) -> None:
    worker.begin(_job(Acts()))
    assert _value(_one_batch(worker, ["print"])) == ["printed"]
