"""Where a process for a torch dataset may be free."""

from __future__ import annotations

from collections.abc import Collection

from stoker_proto.v1 import control_pb2 as wire
from stoker_service.client.control import Control
from stoker_service.client.owners import Owner


def next_place(control: Control, lane: int, tried: Collection[Owner]) -> Owner | None:
    """The lane's owner; if that was tried, another worker, one with most free processes first. None if all were."""
    owner = control.assignment.owner(lane)
    if owner is None or owner not in tried:
        return owner
    return others(control.workers(), tried)


def others(workers: Collection[wire.WorkerStatus], tried: Collection[Owner]) -> Owner | None:
    """The worker with most free processes of those that take code and were not tried."""
    free: list[tuple[int, str, Owner]] = []
    for status in workers:
        worker = status.worker
        owner = Owner(worker.worker_id, worker.location)
        num_free = worker.max_processes - status.beat.num_processes
        if status.state == "alive" and worker.allows_code and num_free > 0 and owner not in tried:
            free.append((-num_free, worker.worker_id, owner))
    return min(free)[2] if free else None
