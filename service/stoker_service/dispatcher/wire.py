"""Protobuf messages to values and back; nothing else in the dispatcher but servicer.py sees a message."""

from __future__ import annotations

from dataclasses import asdict, fields

from stoker.storage.pacing import PrefixUse
from stoker_proto.v1 import control_pb2 as pb
from stoker_service.dispatcher.events import (
    ClientBeat,
    JobClosed,
    JobOpened,
    Made,
    Unreachable,
    WorkerBeat,
    WorkerRegistered,
)
from stoker_service.dispatcher.model import Assignment, ClientId, Job, JobKey, PipelineId, Worker, WorkerId
from stoker_service.dispatcher.snapshot import ClientView, JobView, Snapshot, WorkerView
from stoker_service.fleet_counts import FleetCounts
from stoker_service.members import Member

DEFAULT_JOB = "default"


def job_key(pipeline: str, name: str) -> JobKey:
    return JobKey(PipelineId(pipeline), name or DEFAULT_JOB)


def worker_registered(request: pb.RegisterWorkerRequest) -> WorkerRegistered:
    sent = request.worker
    worker = Worker(
        WorkerId(sent.worker_id),
        sent.location,
        sent.host_id,
        sent.num_threads or 1,
        sent.allows_code,
        sent.pid,
        sent.release,
        sent.max_processes,
        sent.keeps_cache,
        sent.backend or "cpu",
        sent.device or "cpu",
    )
    return WorkerRegistered(worker)


def worker_beat(request: pb.WorkerBeatRequest) -> WorkerBeat:
    return WorkerBeat(
        WorkerId(request.worker_id),
        tuple(Made(PipelineId(job.pipeline), job.rows, job.decode_s, tuple(job.lanes)) for job in request.jobs),
        request.is_draining,
        request.num_streams,
        request.queued_bytes,
        request.bad_samples,
        request.num_processes,
        prefixes=tuple(_prefix_use(use) for use in request.prefixes),
        members_version=request.members_version,
        fleet=_fleet_counts(request.fleet),
    )


def job_opened(request: pb.OpenJobRequest) -> JobOpened:
    sent = request.job
    job = Job(job_key(sent.pipeline, sent.name), sent.num_lanes, sent.world_size, sent.has_code)
    return JobOpened(job, ClientId(request.client_id), request.rank, request.host_id)


def client_beat(request: pb.ClientBeatRequest) -> ClientBeat:
    return ClientBeat(
        job_key(request.pipeline, request.name),
        ClientId(request.client_id),
        request.rows,
        request.steps,
        request.wait_s,
        request.active_s,
        request.epoch,
        request.queued_bytes,
        request.assignment_version,
    )


def unreachable(request: pb.ReportUnreachableRequest) -> Unreachable:
    key, worker_id = job_key(request.pipeline, request.name), WorkerId(request.worker_id)
    return Unreachable(key, ClientId(request.client_id), worker_id, request.reason)


def job_closed(request: pb.CloseJobRequest) -> JobClosed:
    return JobClosed(job_key(request.pipeline, request.name), ClientId(request.client_id))


def assignment(found: Assignment) -> pb.Assignment:
    owners = [
        pb.Owner(lane=owner.lane, worker_id=owner.worker_id, location=owner.location, host_id=owner.host_id)
        for owner in found.owners
    ]
    return pb.Assignment(version=found.version, owners=owners, reason=found.reason, is_refusal=found.is_refusal)


def prefix_limit(prefix: str, requests_per_s: float) -> pb.PrefixLimit:
    return pb.PrefixLimit(prefix=prefix, requests_per_s=requests_per_s)


def member(found: Member) -> pb.Member:
    return pb.Member(worker_id=found.worker_id, location=found.location)


def status(snapshot: Snapshot, version: pb.Version, dispatcher_id: str) -> pb.StatusResponse:
    return pb.StatusResponse(
        version=version,
        dispatcher_id=dispatcher_id,
        up_s=snapshot.up_s,
        workers=[_worker_status(view) for view in snapshot.workers],
        jobs=[_job_status(view) for view in snapshot.jobs],
        num_workers_wanted=snapshot.wanted.num_workers,
        reassignments=snapshot.num_reassigned,
        wanted_reason=snapshot.wanted.reason if snapshot.wanted.num_workers else "",
    )


def _worker_status(view: WorkerView) -> pb.WorkerStatus:
    worker = view.worker
    return pb.WorkerStatus(
        worker=pb.Worker(
            worker_id=worker.worker_id,
            location=worker.location,
            host_id=worker.host_id,
            num_threads=worker.num_threads,
            allows_code=worker.allows_code,
            pid=worker.pid,
            release=worker.release,
            max_processes=worker.max_processes,
            keeps_cache=worker.keeps_cache,
            backend=worker.backend,
            device=worker.device,
        ),
        state=view.state,
        silent_s=view.silent_s,
        num_lanes=view.num_lanes,
        rows_per_s=view.rows_per_s,
        beat=_worker_beat(view.beat) if view.beat else None,
    )


def _worker_beat(beat: WorkerBeat) -> pb.WorkerBeatRequest:
    return pb.WorkerBeatRequest(
        worker_id=beat.worker_id,
        jobs=[
            pb.WorkerJob(pipeline=made.pipeline, rows=made.rows, decode_s=made.decode_s, lanes=made.lanes)
            for made in beat.jobs
        ],
        is_draining=beat.is_draining,
        num_streams=beat.num_streams,
        queued_bytes=beat.queued_bytes,
        bad_samples=beat.bad_samples,
        num_processes=beat.num_processes,
        prefixes=[pb.PrefixUse(**asdict(use)) for use in beat.prefixes],
        members_version=beat.members_version,
        fleet=pb.FleetCounts(**asdict(beat.fleet)),
    )


def _prefix_use(sent: pb.PrefixUse) -> PrefixUse:
    return PrefixUse(sent.prefix, sent.requests, sent.throttled, sent.waited, sent.seconds, sent.limit)


def _fleet_counts(sent: pb.FleetCounts) -> FleetCounts:
    return FleetCounts(**{field.name: getattr(sent, field.name) for field in fields(FleetCounts)})


def _job_status(view: JobView) -> pb.JobStatus:
    job = view.job
    return pb.JobStatus(
        job=pb.Job(
            pipeline=job.key.pipeline,
            name=job.key.name,
            num_lanes=job.num_lanes,
            world_size=job.world_size,
            has_code=job.has_code,
        ),
        clients=[_client_status(client) for client in view.clients],
        assignment=assignment(view.assignment),
    )


def _client_status(view: ClientView) -> pb.ClientStatus:
    return pb.ClientStatus(
        client_id=view.client_id,
        rank=view.rank,
        silent_s=view.silent_s,
        rows_per_s=view.rows_per_s,
        starved_fraction=view.starved_fraction,
        beat=_client_beat(view.beat) if view.beat else None,
    )


def _client_beat(beat: ClientBeat) -> pb.ClientBeatRequest:
    return pb.ClientBeatRequest(
        pipeline=beat.key.pipeline,
        name=beat.key.name,
        client_id=beat.client_id,
        assignment_version=beat.assignment_version,
        rows=beat.rows,
        steps=beat.steps,
        wait_s=beat.wait_s,
        active_s=beat.active_s,
        epoch=beat.epoch,
        queued_bytes=beat.queued_bytes,
    )
