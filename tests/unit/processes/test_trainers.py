"""Worker processes of trainers that are started and end in every way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest

from stoker.processes.launch import StartMethod
from support.leftovers import Watch
from support.programs import DEADLINE_S, LEAVE_S, environment

METHODS: tuple[StartMethod, ...] = get_args(StartMethod)
ROOTS = environment()["PYTHONPATH"].split(os.pathsep)

# No `if __name__ == "__main__"`: whoever imported this again would launch again.
TRAINER = """
import json, os, signal, sys, threading
from stoker.processes import nursery
from stoker.processes.launch import launch

def answer(worker):
    return bytes(worker.channel.receive(60).body)

def tell(*workers, more=()):
    home = nursery._home.nursery
    pids = [worker.pid for worker in workers] + ([home.pid] if home else []) + list(more)
    print(json.dumps(pids), flush=True)

"""
ECHO = "worker = launch('support.worker_programs:echo', 'w', method={method!r})\n"
ASK = "worker.channel.send([b'hi']); assert answer(worker) == b'hi'; tell(worker)\n"
WAIT = "threading.Event().wait()\n"


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> StartMethod:
    found: StartMethod = request.param
    return found


@contextmanager
def trainer(script: str, **settings: Any) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Start a script; gives the pids that its first line has."""
    with subprocess.Popen(
        [sys.executable, "-c", TRAINER + script],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **settings,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                pytest.fail(process.communicate(timeout=DEADLINE_S)[1])
            yield process, json.loads(line)
        finally:
            process.kill()


def run(arguments: list[str], **settings: Any) -> str:
    """Run a trainer to its end; what it wrote."""
    settings = {"env": environment(), **settings}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False, **settings
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    output: str = done.stdout
    return output


# -- ending ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["echo", "busy", "busy_in_c", "deaf"])
def test_nothing_is_left_of_a_killed_trainer(method: StartMethod, program: str) -> None:
    script = f"worker = launch('support.worker_programs:{program}', 'w', method={method!r})\n"
    script += ("worker.channel.send([b'hi'])\n" if program == "echo" else "") + "answer(worker); tell(worker)\n" + WAIT
    with trainer(script) as (process, pids), Watch(pids) as watch:
        process.kill()
        assert watch.left(LEAVE_S) == []


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_nothing_is_left_although_a_fork_of_the_trainer_lives_on(method: StartMethod) -> None:
    script = f"""
import ctypes
first = launch('support.worker_programs:deaf', 'first', method={method!r}); answer(first)
python = os.fork()  # knows nothing of it
if not python:
    signal.pause()
native = ctypes.CDLL(None).fork()  # keeps a copy of every descriptor
if not native:
    ctypes.CDLL(None).pause()
tell(first, more=[python, native])
threading.Event().wait()
"""
    with trainer(script) as (process, pids), Watch(pids[:2]) as watch, Watch(pids[2:]) as forks:
        process.kill()
        assert watch.left(LEAVE_S) == []
        assert forks.left(0) == pids[2:]
        for pid in pids[2:]:
            os.kill(pid, signal.SIGKILL)
        assert forks.left(LEAVE_S) == []


@pytest.mark.parametrize("process_index", [0, 1])
def test_nothing_is_left_when_worker_or_nursery_is_stopped(process_index: int) -> None:
    with trainer(ECHO.format(method="forkserver") + ASK + WAIT) as (process, pids), Watch(pids) as watch:
        os.kill(pids[process_index], signal.SIGSTOP)
        if process_index == 1:
            # what job control does to a session whose leader is gone, but as it is our own child, is ours to do
            process.kill()
            os.kill(pids[1], signal.SIGCONT)
        process.kill()
        assert watch.left(LEAVE_S) == []


def test_processes_that_a_worker_started_go_with_the_trainer(method: StartMethod) -> None:
    script = (
        f"""
worker = launch('support.worker_programs:with_grandchild', 'w', method={method!r})
tell(worker, more=[int(answer(worker))])
"""
        + WAIT
    )
    with trainer(script) as (process, pids), Watch(pids) as watch:
        process.kill()
        assert watch.left(LEAVE_S) == []


def test_ctrl_c_ends_the_trainer_and_with_it_all_others(method: StartMethod) -> None:
    with trainer(ECHO.format(method=method) + ASK + WAIT) as (process, pids), Watch(pids) as watch:
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE_S)
        assert watch.left(LEAVE_S) == []
    assert errors.count("KeyboardInterrupt") == 1
    assert errors.count("Traceback") == 1


def test_ctrl_c_leaves_workers_to_a_trainer_that_goes_on(method: StartMethod) -> None:
    script = f"""
{ECHO.format(method=method)}
try:
    {ASK}
    {WAIT}
except KeyboardInterrupt:
    {ASK}
    sys.stdin.read()
"""
    with trainer(script) as (process, pids):
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == pids


@pytest.mark.parametrize("ending", ["", "worker.close(0)\n", "sys.exit(0)\n", "os._exit(0)\n"])
def test_leaving_the_interpreter_leaves_nothing(method: StartMethod, ending: str) -> None:
    script = ECHO.format(method=method) + ASK + "sys.stdin.read()\n" + ending
    with trainer(script) as (process, pids), Watch(pids) as watch:
        _, errors = process.communicate(timeout=LEAVE_S)
        assert process.returncode == 0
        assert errors == ""
        assert watch.left(LEAVE_S) == []


def test_a_busy_worker_does_not_hold_up_leaving(method: StartMethod) -> None:
    script = f"worker = launch('support.worker_programs:busy', 'w', method={method!r})\n"
    script += "answer(worker); tell(worker); sys.stdin.read()\n"
    with trainer(script) as (process, pids), Watch(pids) as watch:
        process.communicate(timeout=LEAVE_S)
        assert watch.left(LEAVE_S) == []


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_nursery_that_is_still_importing_goes_too(tmp_path: Path, is_killed: bool) -> None:
    """A package's import may take for ever, such as from a network disk that does not answer."""
    (tmp_path / "torchvision.py").write_text("while True: pass", encoding="utf-8")
    script = f"""
sys.path.insert(0, {str(tmp_path)!r})
sys.modules["torchvision"] = None
nursery.warm()
tell()
sys.stdin.read()
"""
    with trainer(script) as (process, pids), Watch(pids) as watch:
        if is_killed:
            process.kill()
        else:
            process.communicate(timeout=LEAVE_S)
        assert watch.left(LEAVE_S) == []


def test_when_the_interpreter_has_left_the_nursery_is_gone_too() -> None:
    with (
        trainer(ECHO.format(method="forkserver") + ASK + "sys.stdin.read()\n") as (process, pids),
        Watch(pids) as watch,
    ):
        process.communicate(timeout=LEAVE_S)
        assert watch.left(0) == []


# -- starting ----------------------------------------------------------------------------------------------------------

SCRIPT = (
    f"""
import sys
sys.path[:0] = {ROOTS!r}
"""
    + TRAINER
    + "print('once')\n"
)


@pytest.mark.parametrize("flags", [[], ["-P"], ["-I"], ["-s", "-B", "-X", "utf8"], ["-W", "error"]])
def test_a_script_without_a_guard_whatever_the_flags(tmp_path: Path, method: StartMethod, flags: list[str]) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT + ECHO.format(method=method) + ASK + "worker.close(0)", encoding="utf-8")
    without_path = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    lines = run([*flags, str(path)], env=without_path, cwd=tmp_path).splitlines()
    assert lines[0] == "once"
    assert len(lines) == 2


@pytest.mark.parametrize("name", ["pickle", "socket", "stoker", "numpy", "importlib"])
def test_modules_of_the_current_folder_are_not_taken_for_ours(tmp_path: Path, method: StartMethod, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')", encoding="utf-8")
    script = tmp_path / "elsewhere" / "train.py"
    script.parent.mkdir()
    script.write_text(SCRIPT + ECHO.format(method=method) + ASK, encoding="utf-8")
    assert run([str(script)], cwd=tmp_path)


def test_a_trainer_that_is_typed_in(method: StartMethod) -> None:
    script = (TRAINER + ECHO.format(method=method) + ASK).replace("\n    ", "\n  ")
    done = subprocess.run(
        [sys.executable, "-i"],
        input=script,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert len(json.loads(done.stdout)) >= 1, done.stderr


def test_a_trainer_whose_folder_is_gone(tmp_path: Path, method: StartMethod) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"import os; os.rmdir({str(gone)!r})\n" + TRAINER + ECHO.format(method=method) + ASK
    assert run(["-c", script], cwd=gone)


def test_a_trainer_without_standard_streams(tmp_path: Path, method: StartMethod) -> None:
    told = tmp_path / "told"
    script = f"import os; os.closerange(0, 3)\n{TRAINER}{ECHO.format(method=method)}"
    script += f"worker.channel.send([b'hi']); open({str(told)!r}, 'wb').write(answer(worker))"
    run(["-c", script])
    assert told.read_bytes() == b"hi"


def test_an_interpreter_that_is_not_known() -> None:
    script = (
        TRAINER
        + "sys.executable = ''; nursery.warm()\n"
        + ECHO.format(method="fork")
        + ASK
        + f"""
from stoker.errors import WorkerError
try:
    {ECHO.format(method="forkserver")}
except WorkerError as error:
    print(error)
"""
    )
    assert 'use the start method "fork"' in run(["-c", script])


def test_no_worker_is_started_while_the_interpreter_exits() -> None:
    script = (
        "import atexit\n"
        + TRAINER.replace("import json", "import json, stoker.leaving")
        + f"""
def late():
    try:
        {ECHO.format(method="forkserver")}
    except Exception as error:
        print(type(error).__name__, error)

stoker.leaving.at_last(late)
"""
    )
    assert "WorkerError no worker can be started while the interpreter exits" in run(["-c", script])
