"""The calls of ControlService: a message to an event, an answer to a message."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import grpc

from stoker_proto.v1 import control_pb2 as pb
from stoker_service import versions
from stoker_service.dispatcher import limits, wire
from stoker_service.dispatcher.events import DrainAsked, JobOpened, StopAsked, WorkerRegistered
from stoker_service.dispatcher.limits import RefusedError
from stoker_service.dispatcher.model import Assignment, JobKey, PipelineId, Settings, WorkerId
from stoker_service.dispatcher.shell import Shell
from stoker_service.dispatcher.state import State
from stoker_service.limits import MAX_LANES, MAX_PIPELINE_BYTES
from stoker_service.members import UNTOLD

_CODES = {
    "invalid": grpc.StatusCode.INVALID_ARGUMENT,
    "exhausted": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "incompatible": grpc.StatusCode.FAILED_PRECONDITION,
    "not found": grpc.StatusCode.NOT_FOUND,
    "ending": grpc.StatusCode.UNAVAILABLE,
}


class Servicer:
    """Answers of one dispatcher. gRPC calls from any of its threads."""

    def __init__(self, shell: Shell, settings: Settings) -> None:
        self._shell = shell
        self._settings = settings
        self._messages = _Messages()

    def methods(self) -> SimpleNamespace:
        """What the generated code registers: one attribute for each call."""
        calls: dict[str, Callable[[Any], Any]] = {
            "Hello": self.hello,
            "RegisterWorker": self.register_worker,
            "WorkerBeat": self.worker_beat,
            "OpenJob": self.open_job,
            "ClientBeat": self.client_beat,
            "ReportUnreachable": self.report_unreachable,
            "CloseJob": self.close_job,
            "Drain": self.drain,
            "Status": self.status,
            "Stop": self.stop,
        }
        return SimpleNamespace(**{name: _answering(call) for name, call in calls.items()})

    def hello(self, request: pb.HelloRequest) -> pb.HelloResponse:
        ours, theirs = versions.ours(), request.version
        limits.check_version(
            theirs.protocol,
            theirs.oldest_protocol,
            theirs.release,
            our_protocol=ours.protocol,
            our_oldest=ours.oldest_protocol,
            our_release=ours.release,
        )
        told = pb.Limits(
            max_message_bytes=limits.MAX_MESSAGE_BYTES,
            max_pipeline_bytes=MAX_PIPELINE_BYTES,
            max_lanes=MAX_LANES,
            max_jobs=limits.MAX_JOBS,
        )
        beat_ms = max(1, round(1000 * self._settings.beat_s))
        return pb.HelloResponse(version=ours, limits=told, beat_ms=beat_ms, dispatcher_id=self._settings.dispatcher_id)

    def register_worker(self, request: pb.RegisterWorkerRequest) -> pb.RegisterWorkerResponse:
        event = wire.worker_registered(request)
        self._shell.check_and_tell(lambda state: _check_worker(state, event), event, _nothing)
        return pb.RegisterWorkerResponse()

    def worker_beat(self, request: pb.WorkerBeatRequest) -> pb.WorkerBeatResponse:
        limits.check_id("worker_id", request.worker_id)
        event = wire.worker_beat(request)
        orders = self._shell.tell(event, lambda state: state.orders_for(event.worker_id))
        told = orders.members or UNTOLD
        return pb.WorkerBeatResponse(
            is_known=orders.is_known,
            should_drain=orders.should_drain,
            should_stop=orders.should_stop,
            is_last=orders.is_last,
            limits=[wire.prefix_limit(prefix, rate) for prefix, rate in orders.limits.items()],
            members=[wire.member(one) for one in told.members],
            members_version=told.version,
        )

    def open_job(self, request: pb.OpenJobRequest) -> pb.OpenJobResponse:
        event = wire.job_opened(request)
        pipeline = event.job.key.pipeline
        found = self._shell.check_and_tell(
            lambda state: _check_job(state, event), event, lambda state: state.assignment_of(pipeline)
        )
        return pb.OpenJobResponse(assignment=self._messages.of(pipeline, found))

    def client_beat(self, request: pb.ClientBeatRequest) -> pb.ClientBeatResponse:
        _check_client(request)
        event = wire.client_beat(request)
        found = self._shell.tell(event, lambda state: _owners(state, event.key, event.client_id))
        if found is None:
            return pb.ClientBeatResponse(is_known=False)
        if found.version in ("", event.assignment_version):  # nothing decided yet, or nothing new
            return pb.ClientBeatResponse(is_known=True)
        return pb.ClientBeatResponse(is_known=True, assignment=self._messages.of(event.key.pipeline, found))

    def report_unreachable(self, request: pb.ReportUnreachableRequest) -> pb.ReportUnreachableResponse:
        _check_client(request)
        limits.check_id("worker_id", request.worker_id)
        event = wire.unreachable(request)
        is_dead, found = self._shell.tell(
            event, lambda state: (state.is_dead(event.worker_id), _owners(state, event.key, event.client_id))
        )
        if found is None:
            return pb.ReportUnreachableResponse(is_dead=is_dead)
        message = self._messages.of(event.key.pipeline, found)
        return pb.ReportUnreachableResponse(is_dead=is_dead, assignment=message)

    def close_job(self, request: pb.CloseJobRequest) -> pb.CloseJobResponse:
        _check_client(request)
        self._shell.tell(wire.job_closed(request), _nothing)
        return pb.CloseJobResponse()

    def drain(self, request: pb.DrainRequest) -> pb.DrainResponse:
        found = self._shell.ask(lambda state: state.workers_named(request.worker_id))
        worker_id = WorkerId(limits.one_worker(request.worker_id, found))
        self._shell.tell(DrainAsked(worker_id), _nothing)
        return pb.DrainResponse(worker_id=worker_id)

    def status(self, request: pb.StatusRequest) -> pb.StatusResponse:
        del request  # it asks for nothing in particular
        snapshot = self._shell.now(lambda state, now_s: state.snapshot(now_s))
        return wire.status(snapshot, versions.ours(), self._settings.dispatcher_id)

    def stop(self, request: pb.StopRequest) -> pb.StopResponse:
        self._shell.tell(StopAsked(request.when_jobs_end), _nothing)
        return pb.StopResponse()


class _Messages:
    """The message of each pipeline's assignment, made once for all clients and beats."""

    def __init__(self) -> None:
        self._made: dict[PipelineId, tuple[Assignment, pb.Assignment]] = {}

    def of(self, pipeline: PipelineId, found: Assignment) -> pb.Assignment:
        """The caller only reads it. Two threads may make the same one; either serves."""
        known = self._made.get(pipeline)
        if known is not None and known[0] is found:
            return known[1]
        message = wire.assignment(found)
        if len(self._made) >= limits.MAX_JOBS:
            self._made = {}
        self._made[pipeline] = (found, message)
        return message


def _answering(call: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """The call as gRPC makes it: what is refused becomes a status."""

    def answer(request: Any, context: Any) -> Any:
        try:
            limits.check_message(request.ByteSize())
            return call(request)
        except RefusedError as error:
            return context.abort(_CODES[error.kind], error.text)

    return answer


def _nothing(_state: State) -> None:
    """No question."""


def _owners(state: State, key: JobKey, client_id: Any) -> Assignment | None:
    """The owners of a client's lanes; None if the client is not known."""
    return state.assignment_of(key.pipeline) if state.knows_client(key, client_id) else None


def _check_client(request: pb.ClientBeatRequest | pb.ReportUnreachableRequest | pb.CloseJobRequest) -> None:
    limits.check_id("pipeline", request.pipeline)
    limits.check_id("client_id", request.client_id)


def _check_worker(state: State, event: WorkerRegistered) -> None:
    is_known = state.orders_for(event.worker.worker_id).is_known
    limits.check_worker(event.worker, state.num_workers - is_known)


def _check_job(state: State, event: JobOpened) -> None:
    is_known = state.knows_client(event.job.key, event.client_id)
    limits.check_job(
        event,
        is_new=not state.has_job(event.job.key),
        num_jobs=state.num_jobs,
        num_clients=state.num_clients - is_known,
        is_ending=state.is_ending,
    )
