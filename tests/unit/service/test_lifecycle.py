"""How a process of the service ends: signals, exit codes, its parent's end."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest

from stoker.errors import SpecError
from stoker_service import lifecycle
from stoker_service.children import Backoff
from stoker_service.lifecycle import Signals
from support import commands

# A server that says what it is asked, on stdout. Its behaviour is the first argument.
SERVER = """
import sys, threading
from stoker.errors import SpecError
from stoker_service import lifecycle

kind = sys.argv[1]

class Server:
    def __init__(self):
        self.ended = threading.Event()
        self.code = 0

    def start(self):
        lifecycle.say("starting")
        if kind == "fails":
            raise SpecError("port=1: taken")
        if kind == "starts for ever":
            threading.Event().wait()

    def wait(self):
        if kind.startswith("ends "):
            return int(kind.split()[1])
        self.ended.wait()
        return self.code

    def drain(self):
        lifecycle.say("drain")
        if kind == "drains":
            self.ended.set()

    def stop(self):
        lifecycle.say("stop")
        if kind == "never stops":
            threading.Event().wait()
        self.ended.set()

if kind == "leaves a thread":
    threading.Thread(target=threading.Event().wait).start()
try:
    code = lifecycle.serve(Server(), lambda: lifecycle.say("ready"))
except SpecError as error:
    lifecycle.say(f"error: {error}")
    sys.exit(1)
sys.exit(code)
"""


def run(kind: str, *signals: tuple[str, signal.Signals]) -> tuple[int, list[str]]:
    """Run the server, send each signal after the line that it names, return the exit code and all lines."""
    with commands.command(sys.executable, "-c", SERVER, kind) as running:
        lines: list[str] = []
        for after, number in signals:
            while not lines or lines[-1] != after:
                lines.append(running.line())
            running.send(number)
        code = running.wait()
        rest, _ = running.process.communicate()
        return code, lines + rest.decode().split()


@pytest.mark.parametrize("code", [0, 1, 3])
def test_the_exit_code_is_the_servers_own_when_it_ends_by_itself(code: int) -> None:
    assert run(f"ends {code}") == (code, ["starting", "ready"])


def test_the_first_sigterm_drains() -> None:
    assert run("drains", ("ready", signal.SIGTERM)) == (0, ["starting", "ready", "drain"])


def test_the_second_sigterm_stops_at_once() -> None:
    lines = ["starting", "ready", "drain", "stop"]
    assert run("drains slowly", ("ready", signal.SIGTERM), ("drain", signal.SIGTERM)) == (0, lines)


def test_a_closed_terminal_is_as_sigterm() -> None:
    assert run("drains", ("ready", signal.SIGHUP)) == (0, ["starting", "ready", "drain"])


def test_ctrl_c_stops_at_once() -> None:
    assert run("drains slowly", ("ready", signal.SIGINT)) == (130, ["starting", "ready", "stop"])


def test_ctrl_c_stops_a_server_that_drains() -> None:
    lines = ["starting", "ready", "drain", "stop"]
    assert run("drains slowly", ("ready", signal.SIGTERM), ("drain", signal.SIGINT)) == (130, lines)


def test_a_server_that_starts_for_ever_can_be_stopped() -> None:
    assert run("starts for ever", ("starting", signal.SIGTERM)) == (0, ["starting", "stop"])


def test_a_server_that_never_stops_is_left_behind() -> None:
    started_s = time.monotonic()
    code, _ = run("never stops", ("ready", signal.SIGINT))
    assert code == 130
    assert time.monotonic() - started_s < 10.0


def test_a_thread_that_never_ends_does_not_keep_the_process() -> None:
    assert run("leaves a thread", ("ready", signal.SIGINT))[0] == 130


def test_an_error_of_the_start_reaches_the_caller() -> None:
    code, lines = run("fails")
    assert (code, " ".join(lines)) == (1, "starting error: port=1: taken")


def test_a_child_ends_with_its_parent_however_that_ends() -> None:
    parent = '''
import os, subprocess, sys, threading
child = """
import sys, threading
from stoker_service import lifecycle
lifecycle.end_with_parent(int(sys.argv[1]))
print("here", flush=True)
threading.Event().wait()
"""
running = subprocess.Popen([sys.executable, "-c", child, str(os.getpid())], stdout=subprocess.PIPE)
running.stdout.readline()
print(running.pid, flush=True)
threading.Event().wait()
'''
    with commands.command(sys.executable, "-c", parent) as running:
        child = int(running.line())
        assert commands.is_there(child)
        running.send(signal.SIGKILL)
        assert commands.wait_gone([child], 5.0) == []


def test_a_child_whose_parent_is_gone_already_does_not_begin() -> None:
    code = f"from stoker_service import lifecycle; lifecycle.end_with_parent({os.getpid()} + 1)"
    with commands.command(sys.executable, "-c", code) as running:
        assert running.wait() == 1
        assert "which started this one, is gone" in running.stderr()


def test_signals_come_in_order_with_words_from_threads_and_the_old_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGHUP)
    with Signals(signal.SIGUSR1) as signals:
        assert signals.wait(0.0) == []
        os.kill(os.getpid(), signal.SIGUSR1)
        assert signals.wait(5.0) == [signal.SIGUSR1]
        os.kill(os.getpid(), signal.SIGHUP)
        assert signals.wait(5.0) == [signal.SIGTERM]
        teller = threading.Thread(target=signals.tell, args=("word",))
        teller.start()
        assert signals.wait(5.0) == ["word"]
        teller.join()
    assert (
        signal.getsignal(signal.SIGTERM),
        signal.getsignal(signal.SIGINT),
        signal.getsignal(signal.SIGHUP),
    ) == before
    signals.tell("nobody listens")


def test_a_log_level_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_LOG", "loud")
    with pytest.raises(SpecError, match="STOKER_LOG='loud': expected debug, info, warning or error"):
        lifecycle.log_to_stderr("worker")


def test_a_child_is_started_again_at_once_and_then_ever_later() -> None:
    backoff, delays = Backoff(), []
    for lived_s in (100.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 31.0, 1.0):
        backoff = backoff.after(lived_s)
        delays.append(backoff.delay_s)
    assert delays == [0.0, 0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 0.0, 0.0]
