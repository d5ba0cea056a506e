"""Flight's errors become ours, and proxies stay out of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from stoker.errors import AccessError, ServiceError, SpecError, StokerError
from stoker_service.addresses import PROXY_VARIABLE
from stoker_service.transport.flight import HELLO, act, connect, translate, translated

LOCATION = "grpc://10.0.0.7:4301"


class Server(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow carries no types
    """Answers an action as it is told to."""

    def __init__(self) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.answer: Callable[[bytes], list[bytes]] = lambda body: [body]
        self.released = threading.Event()

    def do_action(self, context: Any, action: Any) -> Any:
        return iter([flight.Result(part) for part in self.answer(action.body.to_pybytes())])


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        yield made
        made.released.set()


def ask(server: Server, deadline_s: float = 5.0) -> list[bytes]:
    location = f"grpc://127.0.0.1:{server.port}"
    with connect(location) as client:
        return list(act(client, location, HELLO, b"hi", deadline_s))


def below(found: type[Any]) -> Iterator[type[Any]]:
    yield found
    for part in found.__subclasses__():
        yield from below(part)


@pytest.mark.parametrize("found", sorted(set(below(flight.FlightError)) | set(below(pa.ArrowException)), key=str))
def test_every_error_of_flight_becomes_one_of_ours(found: type[Exception]) -> None:
    error = found.__new__(found)
    error.args = ("what went wrong. Detail: Python exception: Traceback",)
    made = translate(error, LOCATION)
    assert isinstance(made, StokerError)
    assert LOCATION in str(made)
    assert str(made).endswith("what went wrong")


@pytest.mark.parametrize(
    "found, expected",
    [
        (flight.FlightUnavailableError, ServiceError),
        (flight.FlightCancelledError, ServiceError),
        (flight.FlightTimedOutError, ServiceError),
        (flight.FlightInternalError, ServiceError),
        (OSError, ServiceError),
        (flight.FlightUnauthorizedError, AccessError),
        (flight.FlightServerError, StokerError),
        (pa.ArrowInvalid, StokerError),
    ],
)
def test_a_retry_may_help_where_the_worker_may_come_back(found: type[Exception], expected: type[StokerError]) -> None:
    assert type(translate(found("x"), LOCATION)) is expected


def test_a_connection_that_broke_under_a_stream_is_no_fault_of_the_worker() -> None:
    error = flight.FlightServerError("Flight returned unknown error, with message: Stream removed")
    assert type(translate(error, LOCATION)) is ServiceError


def test_our_own_errors_pass_as_they_are() -> None:
    with pytest.raises(SpecError, match="mine"), translated(LOCATION):
        raise SpecError("mine")


def test_results_come_back(server: Server) -> None:
    server.answer = lambda body: [body, b"two"]
    assert ask(server) == [b"hi", b"two"]


def test_a_worker_that_is_not_there_is_named() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        location = f"grpc://127.0.0.1:{free.getsockname()[1]}"
        with connect(location) as client, pytest.raises(ServiceError, match=f"{location} is unreachable"):
            list(act(client, location, HELLO, b"", 5.0))


def test_a_late_answer_is_not_waited_for(server: Server) -> None:
    def late(body: bytes) -> list[bytes]:
        server.released.wait(30)
        return [body]

    server.answer = late
    with pytest.raises(ServiceError, match="did not answer in time"):
        ask(server, deadline_s=0.1)
    server.released.set()


def test_a_fault_of_the_worker_is_told_without_its_traceback(server: Server) -> None:
    def fail(body: bytes) -> list[bytes]:
        raise ValueError("boom")

    server.answer = fail
    with pytest.raises(StokerError) as caught:
        ask(server)
    assert str(caught.value).endswith("failed: ArrowInvalid: boom")


def test_an_answer_may_be_large(server: Server) -> None:
    server.answer = lambda body: [bytes(20 << 20)]
    assert len(ask(server)[0]) == 20 << 20


@pytest.mark.parametrize("location", ["nonsense", "http://10.0.0.7:1", ""])
def test_an_address_that_is_none_is_refused(location: str) -> None:
    with pytest.raises(SpecError, match="no address of a worker"):
        connect(location)


def test_a_proxy_of_the_environment_is_used_only_when_told(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        monkeypatch.setenv("grpc_proxy", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        for name in ("no_proxy", "no_grpc_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        assert ask(server) == [b"hi"]
        monkeypatch.setenv(PROXY_VARIABLE, "1")
        with pytest.raises(ServiceError):
            ask(server, deadline_s=2.0)
