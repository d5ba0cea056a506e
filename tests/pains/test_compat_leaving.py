"""A loader over a torch dataset goes when told to, and survives forks (pains 26, 30)."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import threading
from collections.abc import Iterator

import pytest

from stoker.compat.loader import DataLoader
from support import programs
from support.compat_programs import run, started
from support.torch_datasets import LOCK, Locking


def _lines(program: subprocess.Popen[str]) -> Iterator[str]:
    assert program.stdout is not None
    return iter(program.stdout.readline, "")


def assert_gone(pids: list[int]) -> None:
    """These processes end, within what leaving may take."""
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            assert select.select([descriptor], [], [], programs.LEAVE_S)[0], f"process {pid} is left"
        finally:
            os.close(descriptor)


@pytest.mark.parametrize(
    "name, status",
    [
        ("break_out", 0),
        ("iterator_kept", 0),
        ("persistent", 0),
        ("forgotten", 0),
        ("stuck", 0),
        ("pinned", 0),
        ("threaded", 0),
        ("raise_in_loop", 1),
    ],
)
def test_a_program_ends_in_time(name: str, status: int) -> None:
    """Pain 26: a program ends within 2 s of its last line, workers and all, with its own exit status and text."""
    with started(name) as program:
        lines = _lines(program)
        first = next(lines, None)
        if first is None:
            pytest.fail(program.communicate()[1])
        pids = json.loads(first)
        assert next(lines) == '"leaving"\n'
        with programs.in_time():
            _, errors = program.communicate(timeout=programs.DEADLINE_S)
            assert_gone(pids)
    assert program.returncode == status
    if status:
        assert errors.rstrip().endswith("RuntimeError: the trainer's own error")
        assert errors.count("Traceback") == 1
    else:
        assert errors == ""


def test_a_thread_that_reads_while_the_program_ends_is_told() -> None:
    """Pain 26: the exit does not wait for it, and it hears that the loader was closed."""
    ran = run("read_in_a_thread")
    assert ran.returncode == 0
    assert ran.stderr.count("Traceback") <= 1, ran.stderr
    assert not ran.stderr or ran.stderr.rstrip().endswith("ClosedError: the workers of this loader are closed")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_a_program_and_its_workers(number: signal.Signals) -> None:
    """Pain 26: Ctrl-C, and kill -9, end a training loop within 2 s and leave no process behind."""
    with started("interrupted") as program:
        pids = json.loads(next(_lines(program)))
        with programs.in_time():
            program.send_signal(number)
            _, errors = program.communicate(timeout=programs.DEADLINE_S)
            assert_gone(pids)
    assert program.returncode == -number
    if number == signal.SIGINT:
        assert errors.count("Traceback") == 1
        assert errors.rstrip().endswith("KeyboardInterrupt")


def test_a_second_ctrl_c_ends_a_program_that_is_closing() -> None:
    """Pain 26: Ctrl-C wakes a wait for a batch that never comes; a second one while the loader closes ends it."""
    with started("interrupted_twice") as program:
        lines = _lines(program)
        pids = json.loads(next(lines))
        with programs.in_time():
            program.send_signal(signal.SIGINT)
            assert next(lines) == '"closing"\n'
            program.send_signal(signal.SIGINT)
            _, errors = program.communicate(timeout=programs.DEADLINE_S)
            assert_gone(pids)
    assert program.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in errors


def test_a_fork_reads_on_or_is_told() -> None:
    """Pain 30: a child that the user forked gets whole epochs of the loader; the parent's iterator says why not."""
    ended = run("fork_after_reading")
    assert ended.returncode == 0, ended.stderr
    heard, status, rest = (json.loads(line) for line in ended.stdout.splitlines())
    assert heard[0].startswith("ClosedError")
    assert "fork" in heard[0]
    assert heard[1] == 5
    assert (status, rest) == (0, 4)


def test_a_lock_that_the_trainer_holds_stops_no_worker() -> None:
    """Pain 30: workers are no forks of the trainer: a lock that one of its threads holds is free in them."""
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with LOCK:
            held.set()
            release.wait(programs.DEADLINE_S)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(programs.DEADLINE_S)
        with DataLoader(Locking(6), num_workers=2, timeout=programs.DEADLINE_S) as loader:
            assert [int(batch) for batch in loader] == list(range(6))
    finally:
        release.set()
        thread.join()
