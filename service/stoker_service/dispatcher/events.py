"""What can happen to the dispatcher's state, and what it asks for in answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stoker.storage.pacing import PrefixUse
from stoker_service.dispatcher.model import ClientId, Job, JobKey, PipelineId, Worker, WorkerId
from stoker_service.fleet_counts import NOTHING, FleetCounts


@dataclass(frozen=True, slots=True)
class WorkerRegistered:
    """A worker tells what it is."""

    worker: Worker


@dataclass(frozen=True, slots=True)
class Made:
    """What a worker has made for one pipeline, running sums since its start; ``lanes`` are open there at the moment."""

    pipeline: PipelineId
    rows: int
    decode_s: float
    lanes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerBeat:
    """A worker tells what it has."""

    worker_id: WorkerId
    jobs: tuple[Made, ...] = ()
    is_draining: bool = False
    num_streams: int = 0
    queued_bytes: int = 0
    bad_samples: int = 0
    num_processes: int = 0
    prefixes: tuple[PrefixUse, ...] = ()
    members_version: str = ""
    fleet: FleetCounts = NOTHING


@dataclass(frozen=True, slots=True)
class WorkerProbed:
    """The dispatcher itself has called a worker: did it answer?"""

    worker_id: WorkerId
    is_alive: bool


@dataclass(frozen=True, slots=True)
class JobOpened:
    """A client tells what it consumes."""

    job: Job
    client_id: ClientId
    rank: int = 0
    host_id: str = ""


@dataclass(frozen=True, slots=True)
class ClientBeat:
    """A client tells how it fares. ``rows`` to ``active_s`` are running sums since its start."""

    key: JobKey
    client_id: ClientId
    rows: int = 0
    steps: int = 0
    wait_s: float = 0.0
    active_s: float = 0.0
    epoch: int = 0
    queued_bytes: int = 0
    assignment_version: str = ""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A client could not reach a worker."""

    key: JobKey
    client_id: ClientId
    worker_id: WorkerId
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JobClosed:
    """A client is done, in good order."""

    key: JobKey
    client_id: ClientId


@dataclass(frozen=True, slots=True)
class DrainAsked:
    """Someone wants a worker to hand over its lanes and to end."""

    worker_id: WorkerId


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Someone wants the whole service to end: now, or once no job is left."""

    when_jobs_end: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. Comes several times a beat."""


Event = (
    ClientBeat
    | WorkerBeat
    | Tick
    | WorkerRegistered
    | WorkerProbed
    | JobOpened
    | JobClosed
    | Unreachable
    | DrainAsked
    | StopAsked
)


@dataclass(frozen=True, slots=True)
class Probe:
    """Call this worker, and tell the outcome as WorkerProbed."""

    worker_id: WorkerId
    location: str


@dataclass(frozen=True, slots=True)
class Notice:
    """Tell people, in the log."""

    level: Literal["info", "warning"]
    text: str


@dataclass(frozen=True, slots=True)
class End:
    """End the process with this exit code: 0 in good order, 3 if a job was lost because its clients vanished."""

    code: Literal[0, 3]


Action = Probe | Notice | End
