"""``stoker dispatcher``, ``status``, ``drain`` and ``down`` as real processes: lines, errors, exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from stoker.errors import SpecError, StallError, StokerError
from stoker_proto.v1 import control_pb2 as wire
from stoker_proto.v1 import control_pb2_grpc
from stoker_service import addresses
from stoker_service.control import Control
from stoker_service.http import Pages
from support import commands
from support.commands import Command

BEAT_S = 0.1
PIPELINE = "f" * 32


@contextmanager
def dispatcher(*options: str) -> Iterator[tuple[Command, str]]:
    with commands.stoker("dispatcher", "--port=0", f"--beat-s={BEAT_S}", "--forget-s=0.5", *options) as running:
        word, _, address = running.line().partition(" ")
        assert word == "dispatcher"
        yield running, address


@contextmanager
def stub(address: str) -> Iterator[Any]:
    with grpc.insecure_channel(addresses.parse(address).target, options=[("grpc.enable_http_proxy", 0)]) as channel:
        yield control_pb2_grpc.ControlServiceStub(channel)  # type: ignore[no-untyped-call]  # generated


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    with commands.stoker(*arguments) as running:
        code = running.wait()
        out, _ = running.process.communicate()
        return subprocess.CompletedProcess(arguments, code, out.decode(), running.stderr())


def open_job(peer: Any, name: str = "train") -> None:
    job = wire.Job(pipeline=PIPELINE, name=name, num_lanes=8, world_size=1)
    peer.OpenJob(wire.OpenJobRequest(job=job, client_id="client"), timeout=5)


def close_job(peer: Any, name: str = "train") -> None:
    peer.CloseJob(wire.CloseJobRequest(pipeline=PIPELINE, name=name, client_id="client"), timeout=5)


def test_a_dispatcher_says_where_it_is_and_answers_the_health_service_and_the_pages() -> None:
    with dispatcher("--http-port=0") as (running, address):
        word, _, url = running.line().partition(" ")
        assert word == "http"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        for page in ("healthz", "readyz", "metrics"):
            with opener.open(f"{url}/{page}", timeout=5) as answer:
                assert answer.status == 200
        target = addresses.parse(address).target
        with grpc.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)]) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            answer = health.Check(health_pb2.HealthCheckRequest(), timeout=5)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_dispatcher_ends_within_two_seconds_of_a_signal(number: signal.Signals, code: int) -> None:
    with dispatcher("--http-port=0") as (running, _):
        running.line()
        started_s = time.monotonic()
        running.send(number)
        assert running.wait() == code
        assert time.monotonic() - started_s < 2.0 + 1.0  # the machine is shared
        assert running.stderr() == ""


def test_status_is_one_json_object_or_tables() -> None:
    with dispatcher("--forget-s=60") as (_, address), stub(address) as peer:
        open_job(peer)
        shown = run("status", "--json", "--service", address)
        assert (shown.returncode, shown.stderr) == (0, "")
        found = json.loads(shown.stdout)
        assert (found["service"], found["workers"]) == (address, [])
        assert [(job["name"], job["num_lanes"]) for job in found["jobs"]] == [("train", 8)]
        shown = run("status", "--service", address)
        assert (shown.returncode, shown.stderr) == (0, "")
        assert PIPELINE[:12] in shown.stdout


def test_draining_a_worker_that_is_not_there_is_an_error_of_one_line() -> None:
    with dispatcher() as (_, address):
        shown = run("drain", "w-7", "--service", address)
    assert (shown.returncode, shown.stdout) == (1, "")
    assert "'w-7'" in shown.stderr
    assert len(shown.stderr.splitlines()) == 1


def test_a_taken_address_is_an_error_of_one_line() -> None:
    with dispatcher() as (_, address):
        port = address.rpartition(":")[2]
        shown = run("dispatcher", f"--port={port}")
    assert (shown.returncode, shown.stdout) == (1, "")
    assert port in shown.stderr
    assert "--port" in shown.stderr
    assert len(shown.stderr.splitlines()) == 1


def test_a_taken_port_of_the_pages_is_an_error_of_one_line() -> None:
    pages = Pages("127.0.0.1", 0, unready=lambda: None, metrics=lambda: b"")
    port = pages.url.rpartition(":")[2]
    shown = run("dispatcher", "--port=0", f"--http-port={port}")
    pages.close()
    assert (shown.returncode, shown.stdout) == (1, "")
    assert shown.stderr.startswith(f"stoker: http_port={port}: cannot listen")
    assert len(shown.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", [["status"], ["drain", "w"], ["down"]], ids=str)
def test_a_service_that_is_not_there_is_an_error_of_one_line(command: list[str]) -> None:
    with dispatcher() as (running, address):
        running.send(signal.SIGTERM)
        running.wait()
    shown = run(*command, "--service", address)
    assert (shown.returncode, shown.stdout) == (1, "")
    assert shown.stderr == (
        f"stoker: no service answers at {address} (Connection refused); start one with: stoker up, or name another "
        "with --service or STOKER_SERVICE\n"
    )


@pytest.mark.parametrize(
    "command", [["status", "--service=grpc://x:1"], ["dispatcher", "--beat-s=0"], ["worker", "--memory-bytes=1KiB"]]
)
def test_a_wrong_option_is_wrong_usage_in_one_line(command: list[str]) -> None:
    shown = run(*command)
    assert (shown.returncode, shown.stdout) == (2, "")
    assert ": expected " in shown.stderr
    assert len(shown.stderr.splitlines()) == 1


def test_a_frozen_service_is_told_from_one_that_is_not_there() -> None:
    with dispatcher() as (running, address):
        running.send(signal.SIGSTOP)
        control = Control(addresses.parse(address), timeout_s=0.3)
        with control, pytest.raises(StallError, match=r"did not answer within 0\.3 s"):
            control.status()
        running.send(signal.SIGCONT)


def test_something_else_that_listens_is_told_from_a_dispatcher() -> None:
    pages = Pages("127.0.0.1", 0, unready=lambda: None, metrics=lambda: b"")
    control = Control(addresses.parse(pages.url.removeprefix("http://")), timeout_s=5.0)
    with control, pytest.raises(StokerError, match=r"127\.0\.0\.1"):
        control.status()
    pages.close()


def test_calls_ignore_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with dispatcher() as (_, address), Control(addresses.parse(address)) as control:
        assert control.status().workers == ()


def test_down_ends_a_service_at_once() -> None:
    with dispatcher() as (running, address), stub(address) as peer:
        open_job(peer)
        shown = run("down", "--service", address)
        assert (shown.returncode, shown.stdout) == (0, f"{address} ends now\n")
        assert running.wait() == 0


def test_down_may_wait_until_the_last_job_has_ended() -> None:
    with dispatcher("--forget-s=60") as (running, address), stub(address) as peer:
        open_job(peer)
        shown = run("down", "--when-jobs-end", "--service", address)
        assert (shown.returncode, shown.stdout) == (0, f"{address} ends when its last job has ended\n")
        with pytest.raises(subprocess.TimeoutExpired):
            running.wait(4 * BEAT_S)
        close_job(peer)
        assert running.wait() == 0


def test_until_jobs_end_ends_with_the_last_job() -> None:
    with dispatcher("--until-jobs-end", "--forget-s=60") as (running, address), stub(address) as peer:
        open_job(peer, "train")
        open_job(peer, "eval")
        close_job(peer, "train")
        with pytest.raises(subprocess.TimeoutExpired):
            running.wait(4 * BEAT_S)
        close_job(peer, "eval")
        assert running.wait() == 0


def test_until_jobs_end_says_by_its_exit_code_that_the_clients_vanished() -> None:
    with dispatcher("--until-jobs-end") as (running, address), stub(address) as peer:
        open_job(peer)
        assert running.wait() == 3


def test_an_unknown_worker_is_a_wrong_argument() -> None:
    with (
        dispatcher() as (_, address),
        Control(addresses.parse(address)) as control,
        pytest.raises(SpecError, match="'nobody'"),
    ):
        control.drain("nobody")
