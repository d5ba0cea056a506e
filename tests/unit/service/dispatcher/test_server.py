"""A dispatcher on a real port, called by real clients."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pyarrow import flight

from stoker.errors import ClosedError, StokerError
from stoker_proto.v1 import control_pb2 as pb
from stoker_proto.v1 import control_pb2_grpc, stream_pb2
from stoker_service import versions
from stoker_service.addresses import parse
from stoker_service.dispatcher import limits
from stoker_service.dispatcher.events import Probe
from stoker_service.dispatcher.model import WorkerId
from stoker_service.dispatcher.probe import Prober, answers
from stoker_service.dispatcher.server import SERVICE, DispatcherServer
from stoker_service.limits import MAX_LANES
from stoker_service.options import DispatcherOptions

BEAT_S = 0.25
DEADLINE_S = 10.0


@pytest.fixture
def start() -> Iterator[Callable[..., DispatcherServer]]:
    servers = []

    def started(**options: Any) -> DispatcherServer:
        server = DispatcherServer(DispatcherOptions(**{"port": 0, "beat_s": BEAT_S, **options}))
        servers.append(server)
        server.start()
        return server

    yield started
    for server in servers:
        server.stop()


class Peer:
    """Calls of a worker or a client."""

    def __init__(self, server: DispatcherServer) -> None:
        options = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", -1)]
        self.channel = grpc.insecure_channel(parse(server.address).target, options=options)
        self.stub: Any = control_pb2_grpc.ControlServiceStub(self.channel)  # type: ignore[no-untyped-call]  # generated

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()

    def call(self, name: str, request: Any) -> Any:
        return getattr(self.stub, name)(request, timeout=DEADLINE_S)

    def refused(self, name: str, request: Any) -> tuple[str, str]:
        with pytest.raises(grpc.RpcError) as caught:
            self.call(name, request)
        return caught.value.code().name, caught.value.details()

    def register(self, worker_id: str, location: str = "grpc://127.0.0.1:1") -> None:
        self.call("RegisterWorker", pb.RegisterWorkerRequest(worker=pb.Worker(worker_id=worker_id, location=location)))

    def worker_beat(self, worker_id: str) -> pb.WorkerBeatResponse:
        found = self.call("WorkerBeat", pb.WorkerBeatRequest(worker_id=worker_id))
        assert isinstance(found, pb.WorkerBeatResponse)
        return found

    def client_beat(self, version: str = "") -> pb.ClientBeatResponse:
        request = pb.ClientBeatRequest(pipeline="p", client_id="client", assignment_version=version)
        found = self.call("ClientBeat", request)
        assert isinstance(found, pb.ClientBeatResponse)
        return found

    def owners(self, *alive: str) -> dict[int, str]:
        """Beat until there are owners."""
        deadline = time.monotonic() + DEADLINE_S
        pause = threading.Event()
        while time.monotonic() < deadline:
            for worker_id in alive:
                self.worker_beat(worker_id)
            found = self.client_beat().assignment
            if found.owners:
                return {owner.lane: owner.worker_id for owner in found.owners}
            pause.wait(BEAT_S / 4)  # a peer's beat; the loop ends by what it finds
        raise AssertionError("there were no owners in time")


@pytest.fixture
def peer(start: Callable[..., DispatcherServer]) -> Iterator[Peer]:
    with Peer(start()) as found:
        yield found


def open_job(**changes: Any) -> pb.OpenJobRequest:
    job = {"pipeline": "p", "num_lanes": 4, "world_size": 1, **changes}
    rank = job.pop("rank", 0)
    client_id = job.pop("client_id", "client")
    return pb.OpenJobRequest(job=pb.Job(**job), client_id=client_id, rank=rank)


class Worker(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow carries no types
    """Answers "hello" as a worker does, and nothing else."""

    def __init__(self, worker_id: str) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.hello = stream_pb2.WorkerHello(worker_id=worker_id).SerializeToString()

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        yield self.hello


@pytest.fixture
def flight_worker() -> Iterator[Worker]:
    with Worker("w") as worker:
        yield worker


def place(worker: Worker) -> str:
    return f"grpc://127.0.0.1:{worker.port}"


def test_every_call_of_the_protocol_is_answered(peer: Peer) -> None:
    codes = {}
    for method in pb.DESCRIPTOR.services_by_name["ControlService"].methods:
        call = getattr(peer.stub, method.name).future(getattr(pb, method.input_type.name)(), timeout=DEADLINE_S)
        codes[method.name] = call.code().name
    good = dict.fromkeys(["Status", "Stop"], "OK")
    assert codes == {**dict.fromkeys(codes, "INVALID_ARGUMENT"), **good, "Hello": "FAILED_PRECONDITION"}


def test_hello_tells_limits_and_beat(peer: Peer) -> None:
    found = peer.call("Hello", pb.HelloRequest(version=versions.ours()))
    assert (found.beat_ms, found.limits.max_lanes, found.version) == (250, MAX_LANES, versions.ours())
    assert found.dispatcher_id


@pytest.mark.parametrize(
    "version, expected",
    [
        (pb.Version(), "a caller older than any release with 0 to 0: upgrade the caller"),
        (
            pb.Version(protocol=99, oldest_protocol=98, release="9.9"),
            "Stoker 9.9, with 98 to 99: upgrade the dispatcher and its workers",
        ),
    ],
)
def test_hello_refuses_who_speaks_no_common_protocol(peer: Peer, version: pb.Version, expected: str) -> None:
    code, text = peer.refused("Hello", pb.HelloRequest(version=version))
    assert code == "FAILED_PRECONDITION"
    assert expected in text
    assert f"as this dispatcher of Stoker {versions.ours().release} does" in text


def test_hello_accepts_a_newer_peer_that_still_speaks_ours(peer: Peer) -> None:
    assert peer.call("Hello", pb.HelloRequest(version=pb.Version(protocol=99, oldest_protocol=1))).dispatcher_id


def test_a_job_finds_its_workers_and_is_told_once(peer: Peer) -> None:
    assert not peer.worker_beat("w").is_known
    peer.register("w")
    assert peer.worker_beat("w").is_known
    assert not peer.client_beat().is_known
    peer.call("OpenJob", open_job())
    assert peer.owners("w") == dict.fromkeys(range(4), "w")
    assignment = peer.client_beat().assignment
    assert assignment.owners[0].location == "grpc://127.0.0.1:1"
    again = peer.client_beat(assignment.version)
    assert (again.is_known, again.HasField("assignment")) == (True, False)


def test_a_job_without_workers_is_told_why(peer: Peer) -> None:
    first = peer.call("OpenJob", open_job()).assignment
    assert (first.version, list(first.owners)) == ("", [])
    assert "just started" in first.reason
    deadline, pause, found = time.monotonic() + DEADLINE_S, threading.Event(), first
    while not found.version and time.monotonic() < deadline:
        pause.wait(BEAT_S / 4)
        found = peer.client_beat().assignment
    assert "no worker is there" in found.reason


@pytest.mark.parametrize(
    "request_, code, expected",
    [
        (open_job(num_lanes=0), "INVALID_ARGUMENT", f"num_lanes: expected 1 to {MAX_LANES}, found 0; change"),
        (open_job(num_lanes=MAX_LANES + 1), "INVALID_ARGUMENT", f"found {MAX_LANES + 1}; change lanes"),
        (open_job(world_size=0), "INVALID_ARGUMENT", "found rank 0 of world_size 0; look at"),
        (open_job(rank=3, world_size=2), "INVALID_ARGUMENT", "found rank 3 of world_size 2"),
        (open_job(pipeline=""), "INVALID_ARGUMENT", "pipeline: expected a text, found nothing; send it"),
        (open_job(client_id=""), "INVALID_ARGUMENT", "client_id: expected a text, found nothing"),
        (open_job(name="n" * 999), "INVALID_ARGUMENT", "name: expected at most 256 letters, found 999"),
        (open_job(client_id="c" * (5 << 20)), "RESOURCE_EXHAUSTED", "expected a message of at most 4194304 bytes"),
    ],
)
def test_a_job_beyond_the_limits_is_refused(peer: Peer, request_: pb.OpenJobRequest, code: str, expected: str) -> None:
    found = peer.refused("OpenJob", request_)
    assert found[0] == code
    assert expected in found[1]


def test_too_many_jobs_are_refused_and_a_known_one_is_not(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_JOBS", 1)
    peer.call("OpenJob", open_job())
    code, text = peer.refused("OpenJob", open_job(name="another"))
    assert code == "RESOURCE_EXHAUSTED"
    assert "expected at most 1 jobs at one time, found 1 and one more; close loaders" in text
    peer.call("OpenJob", open_job(client_id="second"))


def test_a_worker_without_a_place_is_refused(peer: Peer) -> None:
    request = pb.RegisterWorkerRequest(worker=pb.Worker(worker_id="w", location="nowhere"))
    code, text = peer.refused("RegisterWorker", request)
    assert code == "INVALID_ARGUMENT"
    assert "expected a place such as grpc://10.0.0.7:4301, found 'nowhere'" in text


def test_drain_takes_the_beginning_of_an_id(peer: Peer) -> None:
    for worker_id in ("abc", "abd"):
        peer.register(worker_id)
    assert peer.call("Drain", pb.DrainRequest(worker_id="abc")).worker_id == "abc"
    found = peer.worker_beat("abc")
    assert (found.should_drain, found.is_last) == (True, False)
    code, text = peer.refused("Drain", pb.DrainRequest(worker_id="ab"))
    assert (code, "'ab' fits 2 (abc, abd); give more letters" in text) == ("INVALID_ARGUMENT", True)
    code, text = peer.refused("Drain", pb.DrainRequest(worker_id="x"))
    assert (code, "found no worker that fits 'x'; `stoker status` lists them" in text) == ("NOT_FOUND", True)


def test_the_last_worker_is_told_that_it_is(peer: Peer) -> None:
    peer.register("w")
    peer.call("Drain", pb.DrainRequest(worker_id="w"))
    assert peer.worker_beat("w").is_last


def test_a_worker_reported_unreachable_is_called_and_found_dead(peer: Peer, flight_worker: Worker) -> None:
    peer.register("w", place(flight_worker))
    peer.register("gone", "grpc://127.0.0.1:9")
    peer.call("OpenJob", open_job())
    assert set(peer.owners("w", "gone").values()) == {"w", "gone"}
    report = pb.ReportUnreachableRequest(pipeline="p", client_id="client", worker_id="gone")
    found = peer.call("ReportUnreachable", report)
    assert found.is_dead
    assert {owner.worker_id for owner in found.assignment.owners} == {"w"}
    report.worker_id = "w"
    assert not peer.call("ReportUnreachable", report).is_dead
    assert peer.worker_beat("gone").is_known  # its beat alone does not bring it back
    assert set(peer.owners("w").values()) == {"w"}


def test_a_stranger_on_a_workers_port_is_not_the_worker(flight_worker: Worker) -> None:
    assert answers(Probe(WorkerId("w"), place(flight_worker)))
    assert not answers(Probe(WorkerId("another"), place(flight_worker)))
    assert not answers(Probe(WorkerId("w"), "nonsense"))


def test_many_reports_of_one_worker_are_one_call() -> None:
    calls: list[Probe] = []
    told: list[bool] = []
    entered, go_on = threading.Event(), threading.Event()

    def ask(probe: Probe) -> bool:
        calls.append(probe)
        entered.set()
        assert go_on.wait(DEADLINE_S)
        return True

    prober, probe = Prober(ask), Probe(WorkerId("w"), "grpc://h:1")
    first = threading.Thread(target=prober.probe, args=(probe, told.append))
    first.start()
    assert entered.wait(DEADLINE_S)
    second = threading.Thread(target=prober.probe, args=(probe, told.append))
    second.start()
    go_on.set()
    first.join(DEADLINE_S)
    second.join(DEADLINE_S)
    assert (len(calls), told) in [(1, [True]), (2, [True, True])]  # two only if the second came after the first


def test_status_shows_everybody(peer: Peer) -> None:
    peer.register("w")
    peer.call("OpenJob", open_job())
    peer.owners("w")
    found = peer.call("Status", pb.StatusRequest())
    assert [(worker.worker.worker_id, worker.state, worker.num_lanes) for worker in found.workers] == [
        ("w", "alive", 4)
    ]
    (job,) = found.jobs
    assert (job.job.name, job.clients[0].client_id, len(job.assignment.owners)) == ("default", "client", 4)
    assert (found.num_workers_wanted, found.wanted_reason) == (1, "nothing is measured yet")
    assert found.version == versions.ours()


def test_status_gives_no_reason_where_nobody_is_wanted(peer: Peer) -> None:
    found = peer.call("Status", pb.StatusRequest())
    assert (found.num_workers_wanted, found.wanted_reason) == (0, "")


def test_stop_tells_the_workers_and_ends(start: Callable[..., DispatcherServer]) -> None:
    server = start()
    with Peer(server) as peer:
        peer.register("w")
        peer.call("Stop", pb.StopRequest())
        assert peer.worker_beat("w").should_stop
        code, text = peer.refused("OpenJob", open_job())
        assert (code, "found one that ends" in text) == ("UNAVAILABLE", True)
    assert server.wait() == 0


def test_when_the_last_job_ends_the_server_ends(start: Callable[..., DispatcherServer]) -> None:
    server = start(until_jobs_end=True)
    with Peer(server) as peer:
        peer.call("OpenJob", open_job())
        peer.call("CloseJob", pb.CloseJobRequest(pipeline="p", client_id="client"))
    assert server.wait() == 0


def test_a_job_whose_client_vanished_gives_exit_code_three(start: Callable[..., DispatcherServer]) -> None:
    server = start(until_jobs_end=True, forget_s=1.0)
    with Peer(server) as peer:
        peer.call("OpenJob", open_job())
    assert server.wait() == 3


def test_health_is_what_grpcs_standard_says(peer: Peer) -> None:
    stub = health_pb2_grpc.HealthStub(peer.channel)
    for service in ("", SERVICE):
        found = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=DEADLINE_S)
        assert found.status == health_pb2.HealthCheckResponse.SERVING


def test_a_second_dispatcher_on_a_port_fails_at_once(start: Callable[..., DispatcherServer]) -> None:
    port = parse(start().address).port
    with pytest.raises(StokerError, match=rf"cannot listen on 127\.0\.0\.1:{port}: expected a free port"):
        start(port=port)


def test_stopping_takes_less_than_a_second_and_leaves_no_thread(start: Callable[..., DispatcherServer]) -> None:
    before = set(threading.enumerate())
    server = start()
    with Peer(server) as peer:
        peer.register("w")
        started_s = time.monotonic()
        server.stop()
        assert time.monotonic() - started_s < 1.0
        server.stop()
        assert peer.refused("Status", pb.StatusRequest())[0] == "UNAVAILABLE"
    left = {thread for thread in threading.enumerate() if thread.name.startswith("stoker-")} - before
    assert left == set()
    with pytest.raises(ClosedError):
        server.start()


def test_notices_go_to_the_log(start: Callable[..., DispatcherServer], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="stoker.dispatcher")
    with Peer(start()) as peer:
        peer.register("w")
        peer.call("Drain", pb.DrainRequest(worker_id="w"))
    assert "worker w (grpc://127.0.0.1:1) is asked to drain" in caplog.messages


def test_a_dispatcher_started_again_listens_at_once_on_the_port_that_its_peers_know(
    start: Callable[..., DispatcherServer],
) -> None:
    first = start()
    port = parse(first.address).port
    with Peer(first) as peer:
        peer.register("w")
        first.stop()
        second = start(port=port)
        assert second.address == first.address
    with Peer(second) as peer:
        assert not peer.worker_beat("w").is_known
        peer.register("w")
        peer.call("OpenJob", open_job())
        assert peer.owners("w") == dict.fromkeys(range(4), "w")
