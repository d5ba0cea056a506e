"""The jobs that are open, and the clients that consume them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from stoker_service.dispatcher.events import ClientBeat, JobOpened
from stoker_service.dispatcher.meter import Meter
from stoker_service.dispatcher.model import ClientId, Job, JobKey, Settings
from stoker_service.dispatcher.workers import METER_BEATS


@dataclass(slots=True)
class KnownClient:
    """One client, as it told when it opened its job and with its last beat."""

    client_id: ClientId
    rank: int
    host_id: str
    last_s: float
    meter: Meter
    beat: ClientBeat | None = None

    def rows_per_s(self) -> float:
        change = self.meter.change()
        return change[1] / change[0] if change else 0.0

    def starved_fraction(self) -> float:
        """Share of the time of late that its trainer waited, while it consumed at all."""
        change = self.meter.change()
        return min(1.0, change[2] / change[3]) if change and change[3] > 0 else 0.0


@dataclass(slots=True)
class OpenJob:
    """A job.

    ``newest`` is, for each rank, the client that opened last, and when. ``vanished`` are ranks whose client fell silent
    and that nobody took up again.
    """

    job: Job
    clients: dict[ClientId, KnownClient] = field(default_factory=dict)
    newest: dict[int, tuple[ClientId, float]] = field(default_factory=dict)
    vanished: set[int] = field(default_factory=set)
    is_warned: bool = False


class Jobs:
    """All jobs that have clients. A job ends with its last client."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._open: dict[JobKey, OpenJob] = {}
        self.num_opened = 0
        self.num_lost = 0

    def __iter__(self) -> Iterator[OpenJob]:
        return iter(self._open.values())

    def __len__(self) -> int:
        return len(self._open)

    def get(self, key: JobKey) -> OpenJob | None:
        return self._open.get(key)

    def client(self, key: JobKey, client_id: ClientId) -> KnownClient | None:
        job = self._open.get(key)
        return job.clients.get(client_id) if job else None

    def open(self, event: JobOpened, now_s: float) -> bool:
        """Take a client in; returns whether its job is new, or described otherwise than before."""
        entry = self._open.get(event.job.key)
        is_changed = entry is None or entry.job != event.job
        if entry is None:
            entry = self._open[event.job.key] = OpenJob(event.job)
            self.num_opened += 1
        entry.job = event.job
        known = entry.clients.get(event.client_id)
        if known is None:
            meter = Meter(METER_BEATS * self._settings.beat_s)
            entry.clients[event.client_id] = KnownClient(event.client_id, event.rank, event.host_id, now_s, meter)
            entry.newest[event.rank] = (event.client_id, now_s)
            entry.vanished.discard(event.rank)
        else:
            known.last_s = now_s
        return is_changed

    def beat(self, known: KnownClient, beat: ClientBeat, now_s: float) -> None:
        known.beat, known.last_s = beat, now_s
        known.meter.add((now_s, beat.rows, beat.wait_s, beat.active_s))

    def close(self, key: JobKey, client_id: ClientId) -> bool:
        """A client leaves in good order; returns whether its job has ended with it."""
        entry = self._open.get(key)
        if entry is None or entry.clients.pop(client_id, None) is None:
            return False
        return self._end_if_empty(entry)

    def age(self, now_s: float) -> list[OpenJob]:
        """Forget clients that are silent for long, or whose rank has another one; returns the jobs that ended so."""
        ended = []
        for entry in list(self._open.values()):
            for known in [client for client in entry.clients.values() if now_s - client.last_s > self._settings.dead_s]:
                newest, opened_s = entry.newest[known.rank]
                is_replaced = newest != known.client_id and opened_s >= known.last_s
                if is_replaced or now_s - known.last_s > self._settings.forget_s:
                    del entry.clients[known.client_id]
                    if not is_replaced:
                        entry.vanished.add(known.rank)
            if self._end_if_empty(entry):
                ended.append(entry)
        return ended

    def excuse(self, slept_s: float, now_s: float) -> None:
        """Nobody could beat while we slept: count that time for nobody's silence."""
        for entry in self:
            for known in entry.clients.values():
                known.last_s = min(now_s, known.last_s + slept_s)

    def _end_if_empty(self, entry: OpenJob) -> bool:
        if entry.clients:
            return False
        del self._open[entry.job.key]
        self.num_lost += bool(entry.vanished)
        return True
