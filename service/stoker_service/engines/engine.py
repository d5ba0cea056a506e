"""What ``stoker up`` asks of something else that keeps workers alive: another scheduler, such as Ray's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from stoker_service.addresses import Address


@dataclass(frozen=True, slots=True)
class Running:
    """A worker that answers: its name to the engine, and what it is to the service.

    ``worker_id``, ``pid`` and ``location`` are others after the engine has started it again.
    """

    name: str
    worker_id: str
    location: str
    host: str
    pid: int


@dataclass(frozen=True, slots=True)
class Absent:
    """A worker that is asked for and does not answer: it is being started, again perhaps, or finds no place."""

    name: str


class Fleet(Protocol):
    """Workers of one service, which an engine starts, and starts again when they die.

    One thread at a time calls. The workers end with the process that holds the fleet, however that ends.
    """

    def connect(self, timeout_s: float) -> str:
        """Reach the engine; return the host of this machine that the workers reach. Raises StokerError if it cannot."""

    def start(self, dispatcher: Address, num_workers: int) -> None:
        """Ask for workers of this dispatcher; returns before they run. Once, after :meth:`connect`."""

    def scale(self, num_workers: int) -> None:
        """Ask for more workers, or drain those that came last; returns before it is done."""

    def workers(self, timeout_s: float) -> tuple[Running | Absent, ...]:
        """Return all that are asked for; those that do not answer within ``timeout_s`` are absent."""

    def stop(self, drain_s: float) -> None:
        """Drain all, which may take ``drain_s`` at most, then end those that are left, and leave the engine."""


def threads_that_fit(cores: Sequence[float], num_workers: int) -> int:
    """Return the most threads a worker can have if so many are to find room on machines with these cores.

    One, if there is no room for all of them even so.
    """
    for num_threads in range(int(max(cores, default=1.0)), 1, -1):
        if sum(int(number // num_threads) for number in cores) >= num_workers:
            return num_threads
    return 1
