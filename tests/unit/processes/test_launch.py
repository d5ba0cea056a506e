"""Worker processes: how they start, what they find, how they end, and what is known of them meanwhile."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest

from stoker.errors import WorkerError
from stoker.processes import nursery
from stoker.processes.channel import ChannelClosedError
from stoker.processes.launch import StartMethod, WorkerProcess, close_all, launch, launch_all, warm
from support.leftovers import Watch, open_fds

DEADLINE_S = 60.0
CLOSE_S = 2.0
PROGRAMS = "support.worker_programs"
NUM_FDS = 9  # those of this side, those for the worker, and where it is to be
METHODS: tuple[StartMethod, ...] = get_args(StartMethod)

Start = Callable[..., WorkerProcess]


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> StartMethod:
    found: StartMethod = request.param
    return found


@pytest.fixture
def start() -> Iterator[Start]:
    """Launches what is closed after the test."""
    started: list[WorkerProcess] = []

    def begin(program: str, name: str = "tester", **settings: Any) -> WorkerProcess:
        started.append(launch(f"{PROGRAMS}:{program}", name, **settings))
        return started[-1]

    yield begin
    close_all(started, time.monotonic() + CLOSE_S)


def answer(worker: WorkerProcess) -> bytes:
    message = worker.channel.receive(DEADLINE_S)
    assert message is not None
    return bytes(message.body)


def echoes(worker: WorkerProcess) -> bool:
    worker.channel.send([b"are you there?"])
    return answer(worker) == b"are you there?"


def until(holds: Callable[[], bool]) -> None:
    """Look again and again; for what has no descriptor to wait for."""
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline
        os.sched_yield()


def children() -> list[int]:
    """The children of this process, zombies too."""
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()]


# -- starting ----------------------------------------------------------------------------------------------------------


def test_a_worker_answers(start: Start, method: StartMethod) -> None:
    worker = start("echo", method=method)
    assert echoes(worker)
    assert worker.pid not in {0, os.getpid()}
    assert worker.ending() is None


def test_it_finds_the_surroundings_of_its_trainer(
    start: Start,
    method: StartMethod,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    warm()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STOKER_TEST", "at launch")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(sys, "argv", ["train.py", "--lr=1"])
    monkeypatch.setattr(sys, "path", [str(tmp_path / "of the user"), *sys.path])
    worker = start("surroundings", "a name", method=method)
    found = json.loads(answer(worker))
    assert found["argv"] == ["train.py", "--lr=1"]
    assert found["path"][: len(sys.path)] == sys.path
    assert found["folder"] == str(tmp_path)
    assert found["environment"] == dict(os.environ)
    assert (found["thread"], found["comm"]) == ("a name", "a name")
    assert found["interrupt_is_ignored"]
    assert found["termination_is_default"]
    assert found["blocked"] == []
    worker.close(time.monotonic() + DEADLINE_S)
    assert capfd.readouterr().out == "a worker's line\n"


def test_it_has_no_descriptors_but_its_own(start: Start) -> None:
    first, second = (start("surroundings") for _ in range(2))
    of_first, of_second = (json.loads(answer(worker)) for worker in (first, second))
    assert of_first["num_fds"] == of_second["num_fds"] <= 3 + 2 + 1  # the usual, channel and stack, the listing


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_it_never_sees_the_main_module_of_its_trainer(start: Start, method: StartMethod) -> None:
    found = json.loads(answer(start("surroundings", method=method)))
    assert [name for name in found["main"] if not name.startswith("__")] == []


def test_a_worker_of_a_warm_nursery_has_what_the_trainer_has_imported(start: Start) -> None:
    assert "numpy" in sys.modules
    assert "numpy" in json.loads(answer(start("surroundings")))["modules"]


def test_only_a_fork_inherits(start: Start) -> None:
    value = object()
    found = json.loads(answer(start("surroundings", method="fork", inherited=value)))
    assert found["inherited"] == repr(value)
    for method in ("forkserver", "spawn"):
        with pytest.raises(ValueError, match="only a fork inherits"):
            start("surroundings", method=method, inherited=value)


def test_many_at_once(method: StartMethod) -> None:
    workers = launch_all(f"{PROGRAMS}:echo", [f"worker {index}" for index in range(6)], method=method)
    assert all(echoes(worker) for worker in workers)
    assert len({worker.pid for worker in workers}) == 6
    close_all(workers, time.monotonic() + DEADLINE_S)
    assert [worker.ending() for worker in workers] == ["exited with code 0"] * 6


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_from_any_thread(start: Start, method: StartMethod) -> None:
    with ThreadPoolExecutor(6) as threads:
        workers = list(threads.map(lambda index: start("echo", f"worker {index}", method=method), range(6)))
    assert all(echoes(worker) for worker in workers)


def test_a_fork_from_a_thread_outlives_the_thread(start: Start) -> None:
    with ThreadPoolExecutor(1) as threads:
        worker = threads.submit(start, "echo", method="fork").result(DEADLINE_S)
    assert echoes(worker)


@pytest.mark.parametrize(
    "program, text",
    [
        ("support.no_such_module:main", "No module named 'support.no_such_module'"),
        (f"{PROGRAMS}:no_such_function", "no_such_function"),
    ],
)
def test_a_program_that_is_not_there(method: StartMethod, program: str, text: str) -> None:
    before = open_fds()
    with pytest.raises(WorkerError, match="worker 'tester'") as caught:
        launch(program, "tester", method=method)
    assert "Traceback" in str(caught.value)
    assert text in str(caught.value)
    assert open_fds() == before


def test_if_one_of_several_cannot_start_none_is_left() -> None:
    warm()
    launch(f"{PROGRAMS}:echo", "first").close(time.monotonic() + DEADLINE_S)
    before = open_fds()
    with pytest.raises(WorkerError, match="no_such_module"):
        launch_all("support.no_such_module:main", ["a", "b", "c"])
    assert open_fds() == before


def test_a_dead_nursery_is_replaced(start: Start) -> None:
    worker = start("echo")
    dead = nursery._home.nursery
    assert dead is not None
    os.kill(dead.pid, signal.SIGKILL)
    assert worker.ending(DEADLINE_S) == "was killed, since the process that started it ended"
    with pytest.raises(ChannelClosedError):
        worker.channel.receive(DEADLINE_S)
    assert echoes(start("echo"))
    assert nursery._home.nursery is not dead


def test_a_nursery_that_dies_with_a_request_is_replaced(start: Start) -> None:
    start("echo")
    dead = nursery._home.nursery
    assert dead is not None
    os.kill(dead.pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as threads:
        worker = threads.submit(start, "echo")
        os.kill(dead.pid, signal.SIGKILL)
        assert echoes(worker.result(DEADLINE_S))


def test_without_descriptors_there_is_a_reason() -> None:
    launch(f"{PROGRAMS}:echo", "first").close(time.monotonic() + DEADLINE_S)
    before = open_fds()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[-1] + 1 + NUM_FDS, hard))
    fillers: list[int] = []
    try:
        with suppress(OSError):
            while True:
                fillers.append(os.dup(0))
        for _ in range(NUM_FDS):
            with pytest.raises(WorkerError, match="Too many open files"):
                launch(f"{PROGRAMS}:echo", "tester")
            os.close(fillers.pop())
        launch(f"{PROGRAMS}:echo", "tester").close(time.monotonic() + DEADLINE_S)
    finally:
        for fd in fillers:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert open_fds() == before


def test_the_trainer_stays_as_it_was(method: StartMethod) -> None:
    launch(f"{PROGRAMS}:echo", "first", method=method).close(time.monotonic() + DEADLINE_S)
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    before = (open_fds(), children(), threading.active_count(), signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    for _ in range(3):
        worker = launch(f"{PROGRAMS}:echo", "next", method=method)
        assert echoes(worker)
        worker.close(time.monotonic() + DEADLINE_S)
    assert (open_fds(), children(), threading.active_count(), signal.pthread_sigmask(signal.SIG_BLOCK, ())) == before
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == handlers


# -- ending ------------------------------------------------------------------------------------------------------------


def test_how_it_ended(start: Start, method: StartMethod, capfd: pytest.CaptureFixture[str]) -> None:
    assert start("exit_with_3", method=method).ending(DEADLINE_S) == "exited with code 3"
    assert start("fail", method=method).ending(DEADLINE_S) == "exited with code 1"
    assert "LookupError: the program's own error" in capfd.readouterr().err
    worker = start("echo", method=method)
    os.kill(worker.pid, signal.SIGKILL)
    assert worker.ending(DEADLINE_S) == "was killed by signal SIGKILL (the out-of-memory killer sends it)"
    with pytest.raises(ChannelClosedError):
        worker.channel.receive(DEADLINE_S)
    worker = start("busy", method=method)
    worker.kill()
    assert worker.ending(DEADLINE_S) == "was killed by signal SIGKILL"
    worker = start("echo", method=method)
    os.kill(worker.pid, signal.SIGTERM)
    assert worker.ending(DEADLINE_S) == "was killed by signal SIGTERM"


def test_it_leaves_by_itself_when_its_trainer_hangs_up(start: Start, method: StartMethod) -> None:
    worker = start("echo", method=method)
    worker.channel.close()
    assert worker.ending(DEADLINE_S) == "exited with code 0"


@pytest.mark.parametrize("program", ["busy", "busy_in_c", "deaf"])
def test_one_that_does_not_leave_is_killed_in_time(start: Start, method: StartMethod, program: str) -> None:
    worker = start(program, method=method)
    answer(worker)
    begun = time.monotonic()
    worker.close(begun + 0.1)
    assert time.monotonic() - begun < CLOSE_S
    assert worker.ending() == "was killed by signal SIGKILL"
    worker.close(time.monotonic())  # harmless again


def test_a_stopped_one_is_killed_in_time(start: Start, method: StartMethod) -> None:
    worker = start("echo", method=method)
    assert not worker.is_stopped()
    os.kill(worker.pid, signal.SIGSTOP)
    until(worker.is_stopped)
    assert worker.stack(0.05) is None
    begun = time.monotonic()
    worker.close(begun + 0.1)
    assert time.monotonic() - begun < CLOSE_S
    assert worker.ending() == "was killed by signal SIGKILL"
    assert not worker.is_stopped()


# -- what is it doing? -------------------------------------------------------------------------------------------------


def test_the_processor_time_it_used(start: Start, method: StartMethod) -> None:
    worker = start("busy", method=method)
    answer(worker)
    before = worker.cpu_s()
    assert before is not None
    until(lambda: (worker.cpu_s() or 0) > before)
    worker.close(time.monotonic())
    assert worker.cpu_s() is None


@pytest.mark.parametrize("program", ["busy", "busy_in_c"])
def test_where_its_code_is(start: Start, method: StartMethod, program: str) -> None:
    worker = start(program, method=method)
    answer(worker)
    for _ in range(2):
        stack = worker.stack(DEADLINE_S)
        assert stack is not None
        assert f"in {program}" in stack
        assert stack.count("most recent call first") == 1
        assert "child.py" not in stack  # what called the program
    assert worker.ending() is None
    worker.close(time.monotonic())
    assert worker.stack() is None


# -- a trainer that forks ----------------------------------------------------------------------------------------------


def in_fork(check: Callable[[], object]) -> None:
    """Run a check in a fork of this process."""
    pid = os.fork()
    if pid == 0:
        try:
            check()
        except BaseException as error:  # noqa: BLE001  # the outermost place of a process
            os.write(2, f"in the fork: {error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_fork_neither_uses_nor_breaks_its_parents_worker(start: Start, method: StartMethod) -> None:
    worker = start("echo", method=method)

    def check() -> None:
        with pytest.raises(ChannelClosedError, match="forked"):
            worker.channel.send([b"from the fork"])
        for use in (worker.ending, worker.kill, worker.stack):
            with pytest.raises(WorkerError, match="belongs to the process that this one was forked from"):
                use()
        worker.close(time.monotonic())

    in_fork(check)
    assert echoes(worker)


def test_a_fork_launches_workers_of_its_own(start: Start) -> None:
    worker = start("echo")
    parents = nursery._home.nursery

    def check() -> None:
        own = launch(f"{PROGRAMS}:echo", "of the fork")
        assert nursery._home.nursery is not None
        assert nursery._home.nursery is not parents
        assert echoes(own)
        own.close(time.monotonic() + DEADLINE_S)
        nursery._close_at_exit()

    in_fork(check)
    assert echoes(worker)
    assert echoes(start("echo"))
    assert nursery._home.nursery is parents


def test_grandchildren_of_a_worker_do_not_keep_its_end_from_being_known(start: Start, method: StartMethod) -> None:
    worker = start("with_grandchild", method=method)
    grandchild = int(answer(worker))
    with Watch([grandchild]) as watch:
        worker.kill()
        assert worker.ending(DEADLINE_S) is not None
        os.kill(grandchild, signal.SIGKILL)
        assert watch.left(DEADLINE_S) == []
