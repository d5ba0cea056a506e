"""A worker's talk with the dispatcher."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import stoker
from stoker_proto.v1 import control_pb2
from stoker_service.addresses import Address
from stoker_service.dispatcher.server import DispatcherServer
from stoker_service.options import DispatcherOptions
from stoker_service.worker.agent import Agent

WAIT_S = 20.0
BEAT_S = 0.05


@pytest.fixture
def dispatcher() -> Iterator[DispatcherServer]:
    server = DispatcherServer(DispatcherOptions(port=0, beat_s=BEAT_S, forget_s=10.0))
    server.start()
    yield server
    server.stop()


def eventually(is_so: Any) -> None:
    deadline_s = time.monotonic() + WAIT_S
    pause = threading.Event()
    while not is_so():
        assert time.monotonic() < deadline_s, "it is not so within the deadline"
        pause.wait(0.005)


def states(dispatcher: DispatcherServer) -> dict[str, str]:
    return {view.worker.worker_id: view.state for view in dispatcher.snapshot().workers}


def test_it_registers_and_drains_when_it_is_asked_to(start: Any, dispatcher: DispatcherServer) -> None:
    hands = start(str(dispatcher.address), worker_id="w1", drain_s=5.0)
    eventually(lambda: hands.server.unready() is None)
    assert states(dispatcher) == {"w1": "alive"}
    assert hands.server.beat_s == BEAT_S
    hands.server.drain()
    assert hands.server.unready() == "the worker drains"
    eventually(lambda: states(dispatcher)["w1"] != "alive")
    assert hands.server.wait() == 0


def test_the_only_worker_does_not_wait_for_its_clients_to_move(
    start: Any, dispatcher: DispatcherServer, pipeline: stoker.Pipeline
) -> None:
    hands = start(str(dispatcher.address), drain_s=600.0)
    eventually(lambda: hands.server.unready() is None)
    call = hands.open(hands.request(pipeline))
    call.credit(1)
    call.batch()
    hands.server.drain()
    assert call.message()[0].WhichOneof("kind") == "leaving"
    call.close()
    assert hands.server.wait() == 0


def test_who_is_not_alone_waits_for_its_clients_to_move(
    start: Any, dispatcher: DispatcherServer, pipeline: stoker.Pipeline
) -> None:
    hands, other = (start(str(dispatcher.address), drain_s=600.0) for _ in range(2))
    eventually(lambda: hands.server.unready() is None and other.server.unready() is None)
    call = hands.open(hands.request(pipeline))
    call.credit(1)
    call.batch()
    hands.server.drain()
    eventually(lambda: states(dispatcher)[hands.server.worker_id] == "draining")
    call.credit(1)
    call.batch()
    assert not hands.server.is_leaving
    other.server.drain()
    eventually(lambda: hands.server.is_leaving)


def test_without_a_dispatcher_it_is_not_ready_and_says_why(start: Any) -> None:
    hands = start()
    eventually(lambda: "unavailable" in (hands.server.unready() or ""))
    assert "stoker://127.0.0.1:1" in (hands.server.unready() or "")


class Dispatcher:
    """Answers as it is told, without a network: what :class:`Agent` calls through its stub."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_known = True
        self.should_drain = self.should_stop = self.is_last = False
        self.release = 1
        self.limits: dict[str, float] = {}
        self.prefixes: list[control_pb2.PrefixUse] = []

    def Hello(self, request: Any, timeout: float) -> control_pb2.HelloResponse:  # noqa: N802  # gRPC's name
        self.calls.append("hello")
        version = control_pb2.Version(protocol=self.release, oldest_protocol=self.release)
        return control_pb2.HelloResponse(version=version, beat_ms=10)

    def RegisterWorker(self, request: Any, timeout: float) -> control_pb2.RegisterWorkerResponse:  # noqa: N802
        self.calls.append("register")
        return control_pb2.RegisterWorkerResponse()

    def WorkerBeat(self, request: Any, timeout: float) -> control_pb2.WorkerBeatResponse:  # noqa: N802
        self.calls.append("beat")
        self.prefixes = list(request.prefixes)
        answer = control_pb2.WorkerBeatResponse(
            is_known=self.is_known,
            should_drain=self.should_drain,
            should_stop=self.should_stop,
            is_last=self.is_last,
            limits=[control_pb2.PrefixLimit(prefix=name, requests_per_s=rate) for name, rate in self.limits.items()],
        )
        self.is_known = True
        return answer


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def agent(told: list[str]) -> Iterator[Agent]:
    made = Agent(
        Address("127.0.0.1", 1),
        control_pb2.Worker(worker_id="w"),
        control_pb2.WorkerBeatRequest,
        lambda: told.append("drain"),
        lambda: told.append("last"),
        lambda: told.append("stop"),
    )
    yield made
    made.close(time.monotonic() + WAIT_S)


def test_it_registers_again_where_it_is_not_known(agent: Agent) -> None:
    stub = Dispatcher()
    agent._stub = stub
    agent._beat()
    assert agent.unready() is None
    stub.is_known = False
    agent._beat()
    assert "forgotten" in (agent.unready() or "")
    agent._beat()
    assert stub.calls == ["hello", "register", "beat", "beat", "hello", "register", "beat"]
    assert agent.unready() is None


def test_each_order_is_carried_out_once(agent: Agent, told: list[str]) -> None:
    stub = Dispatcher()
    stub.should_drain = stub.should_stop = stub.is_last = True
    agent._stub = stub
    for _ in range(3):
        agent._beat()
    assert told == ["stop", "drain", "last"]


def test_a_dispatcher_of_another_protocol_is_named(agent: Agent) -> None:
    stub = Dispatcher()
    stub.release = 7
    agent._stub = stub
    agent.start()
    eventually(lambda: "protocol 7 to 7" in (agent.unready() or ""))
    assert "register" not in stub.calls


def test_a_few_missed_beats_change_nothing(agent: Agent) -> None:
    agent._stub = Dispatcher()
    agent._beat()
    for _ in range(2):
        agent._miss(OSError("cut"))
    assert agent.unready() is None
    agent._miss(OSError("cut"))
    assert "cut" in (agent.unready() or "")


def test_requests_are_told_and_limits_are_kept_to(agent: Agent) -> None:
    stub = Dispatcher()
    agent._stub = stub
    url = "s3://bucket/train/x.tar"
    agent._limits.ask(url)
    agent._limits.answered(url, is_throttled=True)
    stub.limits = {"s3://bucket/train": 7.0}
    agent._beat()
    (use,) = stub.prefixes
    assert (use.prefix, use.requests, use.throttled) == ("s3://bucket/train", 1, 1)
    assert agent._limits.limit_of(url) == 7.0
    stub.is_known, stub.limits = False, {}
    agent._beat()
    assert agent._limits.limit_of(url) == 7.0
