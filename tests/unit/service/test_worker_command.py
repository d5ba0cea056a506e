"""``stoker worker`` as a real process: lines, readiness, exit codes."""

from __future__ import annotations

import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support import commands
from support.cluster import free_port, until
from support.commands import Command

BEATS = ("--beat-s=0.1", "--forget-s=30")


@contextmanager
def worker(address: str, *options: str) -> Iterator[tuple[Command, str]]:
    """A worker that is ready to be asked, and where its pages are."""
    with commands.stoker("worker", f"--dispatcher={address}", "--http-port=0", *options) as running:
        assert running.line().startswith("worker grpc://127.0.0.1:")
        word, _, url = running.line().partition(" ")
        assert word == "http"
        yield running, url


def readiness(url: str) -> tuple[int, str]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/readyz", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_worker_is_ready_once_a_dispatcher_knows_it() -> None:
    port = free_port()
    with worker(f"stoker://127.0.0.1:{port}", "--worker-id=w-7") as (_, url):
        code, reason = readiness(url)
        assert code == 503
        assert str(port) in reason
        with commands.stoker("dispatcher", f"--port={port}", *BEATS) as dispatcher:
            dispatcher.line()
            until("the worker is ready", lambda: readiness(url)[0] == 200)


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
def test_a_worker_without_streams_ends_soon_after_a_signal(number: signal.Signals, code: int, is_known: bool) -> None:
    with commands.stoker("dispatcher", "--port=0", *BEATS) as dispatcher:
        address = dispatcher.line().split()[1]
        if not is_known:
            dispatcher.send(signal.SIGTERM)
            dispatcher.wait()
        with worker(address) as (running, url):
            if is_known:
                until("the worker is ready", lambda: readiness(url)[0] == 200)
            started_s = time.monotonic()
            running.send(number)
            assert running.wait() == code
            assert time.monotonic() - started_s < 4.0


def test_a_worker_needs_the_address_of_a_dispatcher() -> None:
    with commands.stoker("worker", "--dispatcher=http://x") as running:
        assert running.wait() == 2
        assert "dispatcher='http://x': expected stoker://HOST:PORT" in running.stderr()


@pytest.mark.parametrize("command", [["worker", "--dispatcher=stoker://127.0.0.1:1"], ["up", "--port=0"]])
def test_a_gpu_that_is_not_here_is_an_error_of_one_line(command: list[str]) -> None:
    pytest.importorskip("nvidia.dali")
    with commands.stoker(*command, "--device=cuda:99") as running:
        assert running.wait() == 2
        (line,) = running.stderr().splitlines()
        assert "device='cuda:99': expected" in line


def test_its_metrics_say_what_makes_its_samples() -> None:
    pytest.importorskip("nvidia.dali")
    with worker("stoker://127.0.0.1:1", "--backend=dali") as (_, url):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{url}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
    assert 'stoker_worker_info{backend="dali",device="cpu"} 1.0' in lines
    assert "stoker_gpu_used_bytes 0.0" in lines


def test_a_taken_port_is_an_error_of_one_line() -> None:
    with commands.stoker("dispatcher", "--port=0") as other:
        address = other.line().split()[1]
        port = address.rpartition(":")[2]
        with commands.stoker("worker", f"--dispatcher={address}", f"--port={port}") as running:
            assert running.wait() == 1
            assert port in running.stderr()
            assert len(running.stderr().splitlines()) == 1, running.stderr()


def test_the_environment_names_the_service() -> None:
    with commands.stoker("dispatcher", "--port=0", *BEATS) as dispatcher:
        address = dispatcher.line().split()[1]
        with commands.stoker("worker", "--http-port=0", STOKER_SERVICE=address) as running:
            running.line()
            url = running.line().split()[1]
            until("the worker is ready", lambda: readiness(url)[0] == 200)
