"""What the dispatcher sees at one moment, for people and for metrics."""

from __future__ import annotations

from dataclasses import dataclass

from stoker_service.dispatcher.events import ClientBeat, WorkerBeat
from stoker_service.dispatcher.groups import Group, Groups
from stoker_service.dispatcher.jobs import Jobs, KnownClient
from stoker_service.dispatcher.model import Assignment, ClientId, Job, Worker
from stoker_service.dispatcher.scale import Demand, Wanted, num_wanted
from stoker_service.dispatcher.workers import KnownWorker, Workers, WorkerState


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker. ``num_lanes`` are those that it owns, over all pipelines; ``beat`` is its last one."""

    worker: Worker
    state: WorkerState
    silent_s: float
    num_lanes: int
    rows_per_s: float
    beat: WorkerBeat | None


@dataclass(frozen=True, slots=True)
class ClientView:
    """A client. ``starved_fraction`` is the share of the time of late that its trainer waited for batches."""

    client_id: ClientId
    rank: int
    host_id: str
    silent_s: float
    rows_per_s: float
    starved_fraction: float
    beat: ClientBeat | None


@dataclass(frozen=True, slots=True)
class JobView:
    """A job, those who consume it, and who owns its lanes."""

    job: Job
    clients: tuple[ClientView, ...]
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All of it; ``num_reassigned`` counts lanes that got another owner since the start."""

    up_s: float
    workers: tuple[WorkerView, ...]
    jobs: tuple[JobView, ...]
    wanted: Wanted
    num_reassigned: int


def view(workers: Workers, jobs: Jobs, groups: Groups, *, started_s: float, now_s: float) -> Snapshot:
    """Look at everything. Costs time in the number of workers, clients and jobs."""
    by_pipeline = {group.pipeline: group.assignment for group in groups}
    return Snapshot(
        up_s=now_s - started_s,
        workers=tuple(_worker(known, groups, now_s) for known in workers),
        jobs=tuple(
            JobView(
                entry.job,
                tuple(_client(known, now_s) for known in entry.clients.values()),
                by_pipeline[entry.job.key.pipeline],
            )
            for entry in jobs
        ),
        wanted=wanted(workers, jobs, groups),
        num_reassigned=groups.num_reassigned,
    )


def wanted(workers: Workers, jobs: Jobs, groups: Groups) -> Wanted:
    """How many workers would keep all trainers from waiting."""
    starved: dict[str, float] = {}
    for entry in jobs:
        pipeline = entry.job.key.pipeline
        mine = max((client.starved_fraction() for client in entry.clients.values()), default=0.0)
        starved[pipeline] = max(mine, starved.get(pipeline, 0.0))
    demands = [_demand(group, workers, starved.get(group.pipeline, 0.0)) for group in groups]
    return num_wanted(demands, sum(known.takes_lanes for known in workers))


def _demand(group: Group, workers: Workers, starved_fraction: float) -> Demand:
    able = workers.able(has_code=group.has_code)
    rates = sorted(rate for known in able.values() if (rate := known.rate(group.pipeline)) is not None)
    threads = sorted(known.worker.num_threads for known in able.values())
    return Demand(
        num_lanes=group.num_lanes,
        num_owners=len(group.held()),
        rows_per_s=sum(known.rows_per_s(group.pipeline) for known in workers),
        capacity_rows_per_s=rates[len(rates) // 2] * threads[len(threads) // 2] if rates else 0.0,
        starved_fraction=starved_fraction,
    )


def _worker(known: KnownWorker, groups: Groups, now_s: float) -> WorkerView:
    num_lanes = groups.num_lanes[known.worker.worker_id]
    silent_s = now_s - known.last_s
    return WorkerView(known.worker, known.state, silent_s, num_lanes, known.rows_per_s(), known.beat)


def _client(known: KnownClient, now_s: float) -> ClientView:
    return ClientView(
        known.client_id,
        known.rank,
        known.host_id,
        now_s - known.last_s,
        known.rows_per_s(),
        known.starved_fraction(),
        known.beat,
    )
