"""The processes that a worker runs for clients' torch datasets."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Final

from stoker_service.worker.payloads import Payloads

ENDED_JOBS: Final = "dataset-"
"""The jobs that have no process here any more, as one."""


@dataclass(slots=True, eq=False)
class Seat:
    """Room for one process, taken by one stream, for this lane of this job; ``num_rows`` it has made."""

    job: str
    lane: int
    num_rows: int = 0


@dataclass(frozen=True, slots=True)
class JobSums:
    """What was made for one job since it has processes here, and the lanes that have one now."""

    job: str
    rows: int
    lanes: tuple[int, ...] = ()


class Processes:
    """Who has a process, how many may be, and what they have made. Safe for all threads."""

    def __init__(self, max_processes: int, payloads: Payloads) -> None:
        self.max_processes: Final = max_processes
        self.payloads: Final = payloads
        self._changed = threading.Condition()
        self._seats: set[Seat] = set()
        self._num_ended_rows = 0
        self._num_batches = 0
        self._is_closed = False

    def reserve(self, job: str, lane: int) -> Seat | None:
        """Take a seat; None if there is none."""
        with self._changed:
            if self._is_closed or len(self._seats) >= self.max_processes:
                return None
            seat = Seat(job, lane)
            self._seats.add(seat)
            return seat

    def free(self, seat: Seat) -> None:
        """The process of a seat has ended; harmless again."""
        with self._changed:
            if seat in self._seats:
                self._seats.discard(seat)
                self._num_ended_rows += seat.num_rows
                self._changed.notify_all()

    def on_made(self, seat: Seat, num_rows: int) -> None:
        """A batch is made."""
        with self._changed:
            self._num_batches += 1
            seat.num_rows += num_rows

    @property
    def num_running(self) -> int:
        """Seats that are taken."""
        return len(self._seats)

    @property
    def num_batches(self) -> int:
        """Batches made since the start."""
        return self._num_batches

    def sums(self) -> tuple[JobSums, ...]:
        """What was made, by job; running sums, taken together."""
        with self._changed:
            jobs: dict[str, list[Seat]] = {}
            for seat in self._seats:
                jobs.setdefault(seat.job, []).append(seat)
            found = [
                JobSums(job, sum(seat.num_rows for seat in seats), tuple(sorted(seat.lane for seat in seats)))
                for job, seats in jobs.items()
            ]
            if self._num_ended_rows:
                found.append(JobSums(ENDED_JOBS, self._num_ended_rows))
            return tuple(found)

    def close(self, deadline_s: float) -> None:
        """Give no more seats, and wait until all are free, or for the deadline (monotonic clock)."""
        with self._changed:
            self._is_closed = True
            while self._seats and (left_s := deadline_s - time.monotonic()) > 0:
                self._changed.wait(left_s)
        self.payloads.close()
