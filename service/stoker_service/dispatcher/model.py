"""The values that the dispatcher reasons about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, NewType

WorkerId = NewType("WorkerId", str)
ClientId = NewType("ClientId", str)
PipelineId = NewType("PipelineId", str)
"""A pipeline's fingerprint. Jobs that share it share lanes, owners and batches."""

DEAD_BEATS = 3
"""A peer that has missed this many beats is taken for dead."""


class JobKey(NamedTuple):
    """Clients of one pipeline and name are one job."""

    pipeline: PipelineId
    name: str


@dataclass(frozen=True, slots=True)
class Settings:
    """What a dispatcher was told at its start. ``dispatcher_id`` differs for each start."""

    dispatcher_id: str
    beat_s: float = 1.0
    forget_s: float = 60.0
    until_jobs_end: bool = False

    @property
    def dead_s(self) -> float:
        return DEAD_BEATS * self.beat_s


@dataclass(frozen=True, slots=True)
class Worker:
    """What a worker is; it does not change while the worker lives. ``host_id`` is empty if unknown, ``pid`` is 0."""

    worker_id: WorkerId
    location: str
    host_id: str = ""
    num_threads: int = 1
    allows_code: bool = False
    pid: int = 0
    release: str = ""
    max_processes: int = 0
    keeps_cache: bool = False
    backend: str = "cpu"
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class Job:
    """What a client consumes."""

    key: JobKey
    num_lanes: int
    world_size: int
    has_code: bool = False


@dataclass(frozen=True, slots=True)
class Owner:
    """Who owns a lane, and where to find him."""

    lane: int
    worker_id: WorkerId
    location: str
    host_id: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """The owners of all lanes, in the order of lanes, or none and the reason for it.

    An empty ``version`` says that nothing is decided yet; a client keeps what it has. Two equal versions are one
    assignment, over all restarts of dispatchers.
    """

    version: str
    owners: tuple[Owner, ...] = ()
    reason: str = ""
    is_refusal: bool = False
    """Whether workers are there, and none of them makes such a pipeline."""
