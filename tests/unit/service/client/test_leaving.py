"""How a process with a session forks, exits, and is interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support import session_programs
from support.fake_service import FakeDispatcher, FakeWorker, Hold

LEAVE_S = 4.0
"""For leaving: the promise is 2 s, the rest is for cores that are busy with other tests."""


@pytest.fixture
def dispatcher() -> Iterator[FakeDispatcher]:
    dispatcher = FakeDispatcher()
    yield dispatcher
    dispatcher.stop()


@pytest.fixture
def worker(dispatcher: FakeDispatcher) -> Iterator[FakeWorker]:
    worker = FakeWorker()
    dispatcher.assign(worker)
    yield worker
    worker.close()


def finished(process: subprocess.Popen[str]) -> list[Any]:
    """What it printed; it ended well and wrote no word to its standard error."""
    try:
        out, err = process.communicate(timeout=session_programs.DEADLINE_S)
    finally:
        process.kill()
    assert (process.returncode, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def test_a_fork_is_told_what_to_do_and_the_parent_goes_on(dispatcher: FakeDispatcher, worker: FakeWorker) -> None:
    (taking, opening, closing), batch_index = finished(session_programs.start("fork", dispatcher.url))
    assert taking.startswith("ClosedError: this loader belongs to process")
    assert opening.startswith("StokerError: process")
    assert "spawn" in taking
    assert "spawn" in opening
    assert closing == "nothing"
    assert batch_index == 5


def test_a_script_that_forgets_its_session_exits_at_once(dispatcher: FakeDispatcher, worker: FakeWorker) -> None:
    process = session_programs.start("forget", dispatcher.url)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline()) == "leaving"
    begun = time.monotonic()
    assert finished(process) == []
    assert time.monotonic() - begun < LEAVE_S
    assert len(dispatcher.closed) == 1


def test_ctrl_c_ends_a_wait_and_closing_is_quick(dispatcher: FakeDispatcher, worker: FakeWorker) -> None:
    never = threading.Event()
    worker.script = lambda _request, index: Hold(never) if index >= 2 else None
    process = session_programs.start("wait", dispatcher.url)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline()) == "waiting"
    process.send_signal(signal.SIGINT)
    (took_s,) = finished(process)
    assert isinstance(took_s, float)
    assert took_s < 2
