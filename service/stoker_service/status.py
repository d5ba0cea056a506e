"""What a service looks like from outside, for people and for programs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stoker_service.fleet_counts import NOTHING, FleetCounts

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker; ``state`` is alive, draining or dead, ``silent_s`` the seconds since its last beat.

    ``num_processes`` of at most ``max_processes`` run for torch datasets. ``keeps_cache``: it keeps what it has read,
    for all workers; ``fleet`` counts where its bytes came from. ``backend`` makes its samples, on ``device``.
    """

    worker_id: str
    location: str
    host_id: str
    state: str
    silent_s: float
    num_threads: int
    allows_code: bool
    pid: int
    release: str
    num_lanes: int
    num_streams: int
    rows_per_s: float
    queued_bytes: int
    bad_samples: int
    num_processes: int = 0
    max_processes: int = 0
    keeps_cache: bool = False
    backend: str = "cpu"
    device: str = "cpu"
    fleet: FleetCounts = NOTHING


@dataclass(frozen=True, slots=True)
class ClientStatus:
    """A client: ``starved_fraction`` is the share of the time of late that its trainer waited for batches."""

    client_id: str
    rank: int
    silent_s: float
    rows_per_s: float
    starved_fraction: float
    epoch: int
    rows: int
    steps: int
    wait_s: float
    active_s: float
    queued_bytes: int


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job; ``owners`` are the worker ids of its lanes, lane 0 first, and ``reason`` says why there are none."""

    name: str
    pipeline: str
    num_lanes: int
    world_size: int
    has_code: bool
    clients: tuple[ClientStatus, ...]
    owners: tuple[str, ...]
    reason: str

    @property
    def rows_per_s(self) -> float:
        """Rows that all clients take per second."""
        return sum(client.rows_per_s for client in self.clients)

    @property
    def starved_fraction(self) -> float:
        """That of the client that waits most: the others wait for it in the step's collective."""
        return max((client.starved_fraction for client in self.clients), default=0.0)

    @property
    def epoch(self) -> int:
        """The latest epoch of its clients."""
        return max((client.epoch for client in self.clients), default=0)


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """All that a dispatcher knows; ``num_workers_wanted`` is 0 if nobody needs one, then without a
    reason."""

    service: str
    dispatcher_id: str
    release: str
    up_s: float
    workers: tuple[WorkerStatus, ...]
    jobs: tuple[JobStatus, ...]
    num_workers_wanted: int
    wanted_reason: str
    reassignments: int


def as_json(status: ServiceStatus) -> dict[str, Any]:
    """Return the object that ``stoker status --json`` prints: the fields of the classes above under their names.

    A job also has ``rows_per_s``, ``starved_fraction`` and ``epoch``. Later releases add keys and take none away.
    """
    shown = dataclasses.asdict(status)
    for job, entry in zip(status.jobs, shown["jobs"], strict=True):
        entry.update(rows_per_s=job.rows_per_s, starved_fraction=job.starved_fraction, epoch=job.epoch)
    return shown


def as_text(status: ServiceStatus) -> list[RenderableType]:
    """Return what ``stoker status`` prints: two tables with a sentence before, between and after them.

    For a console without markup: names are others' texts.
    """
    head = f"{status.service}, up {seconds(status.up_s)}, release {status.release or 'unknown'}"
    shown: list[RenderableType] = [head, _workers(status) if status.workers else "no workers", ""]
    shown += [_jobs(status) if status.jobs else "no jobs"]
    shown += [f"{job.name}: no worker makes it: {job.reason}" for job in status.jobs if job.reason]
    why = [f"why: {status.wanted_reason}"] if status.wanted_reason else []
    return [*shown, "", _wanted(status), *why]


def seconds(value: float) -> str:
    """Return a time as people read it: ``0.3 s``, ``12 s``, ``4 min``, ``2.5 h``, ``3.1 d``."""
    if value < 10:
        return f"{value:.1f} s"
    for size, unit in ((86_400, "d"), (3_600, "h")):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value / 60:.0f} min" if value >= 120 else f"{value:.0f} s"


def num_bytes(value: float) -> str:
    """Return a size as people read it: ``0 B``, ``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def _workers(status: ServiceStatus) -> Table:
    from rich.text import Text

    titles = "worker", "state", "silent>", "by", "lanes>", "processes>", "from bucket>", "rows/s>", "queued>", "where"
    table = _table(*titles)
    colours = {"alive": "green", "draining": "yellow", "dead": "red"}
    for worker in status.workers:
        table.add_row(
            worker.worker_id,
            Text(worker.state, colours.get(worker.state, "")),
            seconds(worker.silent_s),
            worker.backend if worker.device == "cpu" else f"{worker.backend} {worker.device}",
            str(worker.num_lanes),
            f"{worker.num_processes} of {worker.max_processes}" if worker.max_processes else "–",
            _from_bucket(worker),
            "–" if worker.state == "dead" else f"{worker.rows_per_s:,.0f}",
            "–" if worker.state == "dead" else num_bytes(worker.queued_bytes),
            worker.location,
        )
    return table


def _from_bucket(worker: WorkerStatus) -> str:
    """The share of bytes that no cache had; said where there is one."""
    fraction = worker.fleet.origin_fraction
    return "–" if fraction is None or not worker.keeps_cache else f"{fraction:.1%}"


def _jobs(status: ServiceStatus) -> Table:
    table = _table("job", "pipeline", "ranks>", "silent>", "lanes>", "epoch>", "rows/s>", "starved>", "queued>")
    for job in status.jobs:
        table.add_row(
            job.name,
            job.pipeline[:12],
            f"{len({client.rank for client in job.clients})} of {job.world_size}",
            seconds(max(client.silent_s for client in job.clients)) if job.clients else "gone",
            str(job.num_lanes),
            str(job.epoch),
            f"{job.rows_per_s:,.0f}",
            f"{job.starved_fraction:.1%}",
            num_bytes(sum(client.queued_bytes for client in job.clients)),
        )
    return table


def _wanted(status: ServiceStatus) -> str:
    num_alive = sum(worker.state == "alive" for worker in status.workers)
    wanted = status.num_workers_wanted
    moves = f"; lanes moved: {status.reassignments:,}"
    if not wanted:
        return f"workers: {num_alive} alive, none needed now{moves}"
    more = f": {wanted - num_alive} more would keep the trainers from waiting" if wanted > num_alive else ""
    return f"workers: {num_alive} alive, {wanted} wanted{more}{moves}"


def _table(*titles: str) -> Table:
    """An empty table; a title that ends in ``>`` stands over numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in titles:
        table.add_column(title.removesuffix(">"), justify="right" if title.endswith(">") else "left", no_wrap=True)
    return table
