"""What a person at the command line asks of a dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from types import TracebackType
from typing import Any, Self

import grpc

from stoker.errors import ServiceError, SpecError, StallError, StokerError
from stoker_proto.v1 import control_pb2 as wire
from stoker_proto.v1 import control_pb2_grpc
from stoker_service import channel
from stoker_service.addresses import SERVICE_VARIABLE, Address
from stoker_service.fleet_counts import FleetCounts
from stoker_service.status import ClientStatus, JobStatus, ServiceStatus, WorkerStatus

TIMEOUT_S = 5.0
_MAX_STATUS_BYTES = 256 << 20  # a thousand workers and four thousand ranks are a few MB


class Control:
    """Calls to one dispatcher, each with a deadline. Raises StokerError with one line that says what to do."""

    def __init__(self, address: Address, *, timeout_s: float = TIMEOUT_S) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._channel = channel.opened(address, ("grpc.max_receive_message_length", _MAX_STATUS_BYTES))
        self._stub = control_pb2_grpc.ControlServiceStub(self._channel)  # type: ignore[no-untyped-call]  # generated

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def status(self) -> ServiceStatus:
        """Return all that the dispatcher knows."""
        return read_status(str(self._address), self._call(self._stub.Status, wire.StatusRequest()))

    def drain(self, worker_id: str) -> str:
        """Ask that a worker leaves; ``worker_id`` may be cut short. Returns its full id; SpecError if there is none."""
        response: wire.DrainResponse = self._call(self._stub.Drain, wire.DrainRequest(worker_id=worker_id))
        return response.worker_id

    def stop(self, *, when_jobs_end: bool) -> None:
        """Ask that the whole service ends, now or once its last job has."""
        self._call(self._stub.Stop, wire.StopRequest(when_jobs_end=when_jobs_end))

    def _call(self, method: Callable[..., Any], request: Any) -> Any:
        try:
            return method(request, timeout=self._timeout_s)
        except grpc.RpcError as error:
            raise self._translated(error) from error

    def _translated(self, error: Any) -> StokerError:
        code, text = error.code(), error.details() or "no reason given"
        if code == grpc.StatusCode.UNAVAILABLE:
            why = text.rpartition(": ")[2].rstrip("]")  # gRPC tells the whole chain of causes, the root last
            return ServiceError(
                f"no service answers at {self._address} ({why}); start one with: stoker up, or name another with "
                f"--service or {SERVICE_VARIABLE}"
            )
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            return StallError(
                f"the service at {self._address} did not answer within {self._timeout_s:g} s; is it stopped or "
                "overloaded, or is something else listening there?"
            )
        if code in {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT}:
            return SpecError(text)
        if code == grpc.StatusCode.UNIMPLEMENTED:
            return StokerError(f"what listens at {self._address} is no dispatcher of Stoker's, or an older one: {text}")
        return StokerError(f"the service at {self._address} refused: {text} ({code.name})")


def read_status(service: str, response: wire.StatusResponse) -> ServiceStatus:
    """Turn the answer of Status into our own values; workers by id, jobs by name."""
    return ServiceStatus(
        service=service,
        dispatcher_id=response.dispatcher_id,
        release=response.version.release,
        up_s=response.up_s,
        workers=tuple(sorted(map(_worker, response.workers), key=lambda worker: worker.worker_id)),
        jobs=tuple(sorted(map(_job, response.jobs), key=lambda job: (job.name, job.pipeline))),
        num_workers_wanted=response.num_workers_wanted,
        wanted_reason=response.wanted_reason,
        reassignments=response.reassignments,
    )


def _worker(found: wire.WorkerStatus) -> WorkerStatus:
    worker, beat = found.worker, found.beat
    return WorkerStatus(
        worker_id=worker.worker_id,
        location=worker.location,
        host_id=worker.host_id,
        state=found.state,
        silent_s=found.silent_s,
        num_threads=worker.num_threads or 1,
        allows_code=worker.allows_code,
        pid=worker.pid,
        release=worker.release,
        num_lanes=found.num_lanes,
        num_streams=beat.num_streams,
        rows_per_s=found.rows_per_s,
        queued_bytes=beat.queued_bytes,
        bad_samples=beat.bad_samples,
        num_processes=beat.num_processes,
        max_processes=worker.max_processes,
        keeps_cache=worker.keeps_cache,
        backend=worker.backend or "cpu",
        device=worker.device or "cpu",
        fleet=FleetCounts(**{field.name: getattr(beat.fleet, field.name) for field in fields(FleetCounts)}),
    )


def _job(found: wire.JobStatus) -> JobStatus:
    owners = sorted(found.assignment.owners, key=lambda owner: owner.lane)
    return JobStatus(
        name=found.job.name or "default",
        pipeline=found.job.pipeline,
        num_lanes=found.job.num_lanes,
        world_size=found.job.world_size,
        has_code=found.job.has_code,
        clients=tuple(sorted(map(_client, found.clients), key=lambda client: (client.rank, client.client_id))),
        owners=tuple(owner.worker_id for owner in owners),
        reason=found.assignment.reason,
    )


def _client(found: wire.ClientStatus) -> ClientStatus:
    beat = found.beat
    return ClientStatus(
        client_id=found.client_id,
        rank=found.rank,
        silent_s=found.silent_s,
        rows_per_s=found.rows_per_s,
        starved_fraction=found.starved_fraction,
        epoch=beat.epoch,
        rows=beat.rows,
        steps=beat.steps,
        wait_s=beat.wait_s,
        active_s=beat.active_s,
        queued_bytes=beat.queued_bytes,
    )
