"""The dispatcher's state: every change of it is one call of :meth:`State.apply`.

It is soft: everybody tells again what it holds, so a lost, doubled or late event does no harm. It is pure: no clock,
chance, thread or network; whoever calls it brings the time, never backwards, and does what it asks for. Not safe for
threads: one lock around it belongs to the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, assert_never

from stoker_service.dispatcher import snapshot
from stoker_service.dispatcher.budgets import Budgets
from stoker_service.dispatcher.events import (
    Action,
    ClientBeat,
    DrainAsked,
    End,
    Event,
    JobClosed,
    JobOpened,
    Notice,
    StopAsked,
    Tick,
    Unreachable,
    WorkerBeat,
    WorkerProbed,
    WorkerRegistered,
)
from stoker_service.dispatcher.fleet import Fleet
from stoker_service.dispatcher.groups import Groups
from stoker_service.dispatcher.jobs import Jobs
from stoker_service.dispatcher.model import Assignment, ClientId, JobKey, PipelineId, Settings, WorkerId
from stoker_service.dispatcher.snapshot import Snapshot
from stoker_service.dispatcher.workers import KnownWorker, Workers
from stoker_service.members import Members

MEASURE_BEATS = 10
"""Speeds are looked at once in so many beats: lanes that move cost the reading of a window again."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What a worker is told in answer to a beat."""

    is_known: bool
    should_drain: bool = False
    should_stop: bool = False
    is_last: bool = False
    """It drains, and nobody can take its lanes: it need not wait for that."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Requests per second that it may send below each prefix."""
    members: Members | None = None
    """Who keeps ranges for the fleet, if the worker does not know it."""


class State:
    """Who is there, which job wants what, which worker owns which lane."""

    def __init__(self, settings: Settings, now_s: float) -> None:
        self._settings = settings
        self._started_s = self._ticked_s = self._measured_s = self._last_job_s = now_s
        self._workers = Workers(settings)
        self._jobs = Jobs(settings)
        self._groups = Groups(settings, self._workers, now_s)
        self._fleet = Fleet(settings, self._workers, now_s)
        self._budgets = Budgets(settings, now_s)
        self._stops_with_jobs = settings.until_jobs_end
        self._needs_a_job = settings.until_jobs_end
        self._ending_s: float | None = None
        self._code: Literal[0, 3] = 0
        self._has_ended = False

    # One case for each kind of event: a table would hide from mypy that none is missing.
    def apply(self, event: Event, now_s: float) -> list[Action]:  # noqa: C901, PLR0911, PLR0912
        """Take one event in, at ``now_s`` of any clock that never goes back; returns what is to be done, in order.

        A beat costs the same however many workers and clients there are, unless it changes who takes lanes.
        """
        match event:
            case ClientBeat():
                return self._client_beat(event, now_s)
            case WorkerBeat():
                return self._worker_beat(event, now_s)
            case Tick():
                return self._tick(now_s)
            case WorkerRegistered():
                if self._workers.register(event.worker, now_s):
                    self._workers_changed(now_s)
                return self._warnings()
            case WorkerProbed():
                return self._worker_probed(event, now_s)
            case JobOpened():
                if self._jobs.open(event, now_s):
                    self._fit(event.job.key.pipeline, now_s)
                return self._warnings()
            case JobClosed():
                if self._jobs.close(event.key, event.client_id):
                    self._fit(event.key.pipeline, now_s)
                    self._last_job_s = now_s
                return []
            case Unreachable():
                return self._unreachable(event, now_s)
            case DrainAsked():
                return self._drain(event, now_s)
            case StopAsked():
                return self._stop(event, now_s)
            case _:
                assert_never(event)

    # Queries: they change nothing.

    @property
    def num_jobs(self) -> int:
        return len(self._jobs)

    @property
    def num_workers(self) -> int:
        return len(self._workers)

    @property
    def num_clients(self) -> int:
        return sum(len(entry.clients) for entry in self._jobs)

    @property
    def is_ending(self) -> bool:
        """Whether workers are being told to stop; no job should be opened any more."""
        return self._ending_s is not None

    def has_job(self, key: JobKey) -> bool:
        return self._jobs.get(key) is not None

    def knows_client(self, key: JobKey, client_id: ClientId) -> bool:
        return self._jobs.client(key, client_id) is not None

    def orders_for(self, worker_id: WorkerId) -> Orders:
        known = self._workers.get(worker_id)
        if known is None:
            return Orders(is_known=False)
        return Orders(
            is_known=True,
            should_drain=known.is_asked_to_drain,
            should_stop=self.is_ending,
            is_last=known.is_draining and not self._takes_lanes(),
            limits=self._budgets.limits_for(worker_id),
            members=self._fleet.news_for(known),
        )

    def is_dead(self, worker_id: WorkerId) -> bool:
        """Whether a client should look for other owners; so for a worker that is not known, too."""
        known = self._workers.get(worker_id)
        return known is None or known.is_dead

    def workers_named(self, prefix: str) -> tuple[WorkerId, ...]:
        """The workers whose ids begin so; the one with exactly this id alone, if there is one."""
        return self._workers.named(prefix)

    def assignment_of(self, pipeline: PipelineId) -> Assignment:
        """The owners now. The same object until it changes."""
        group = self._groups.get(pipeline)
        return group.assignment if group else Assignment("", reason="no job of this pipeline is open")

    def snapshot(self, now_s: float) -> Snapshot:
        return snapshot.view(self._workers, self._jobs, self._groups, started_s=self._started_s, now_s=now_s)

    # Events.

    def _client_beat(self, event: ClientBeat, now_s: float) -> list[Action]:
        known = self._jobs.client(event.key, event.client_id)
        if known is not None:
            self._jobs.beat(known, event, now_s)
        return []

    def _worker_beat(self, event: WorkerBeat, now_s: float) -> list[Action]:
        known = self._workers.get(event.worker_id)
        if known is None:
            return []
        if known.beat is None:
            self._groups.claim(event.worker_id, event.jobs, now_s)
        self._budgets.beat(event.worker_id, event.prefixes, now_s)
        if self._workers.beat(known, event, now_s):
            self._workers_changed(now_s)
        known.is_told_to_stop = self.is_ending
        return [known.probe()] if known.is_suspect else []

    def _worker_probed(self, event: WorkerProbed, now_s: float) -> list[Action]:
        known = self._workers.get(event.worker_id)
        if known is None or not self._workers.probed(known, is_alive=event.is_alive, now_s=now_s):
            return []
        self._workers_changed(now_s)
        if event.is_alive:
            return [Notice("info", f"{_name(known)} answers again")]
        return [Notice("warning", f"{_name(known)} is dead: a client could not reach it, nor could the dispatcher")]

    def _unreachable(self, event: Unreachable, now_s: float) -> list[Action]:
        known = self._workers.get(event.worker_id)
        if known is None:
            return []
        probes, is_first = self._workers.doubt(known, now_s)
        text = f"client {event.client_id} cannot reach {_name(known)}: {event.reason or 'it gives no reason'}"
        return [*([Notice("info", text)] if is_first else []), *probes]

    def _drain(self, event: DrainAsked, now_s: float) -> list[Action]:
        known = self._workers.get(event.worker_id)
        if known is None or known.is_asked_to_drain:
            return []
        known.is_asked_to_drain = True
        self._workers_changed(now_s)
        return [Notice("info", f"{_name(known)} is asked to drain")]

    def _stop(self, event: StopAsked, now_s: float) -> list[Action]:
        if event.when_jobs_end:
            self._stops_with_jobs, self._needs_a_job = True, False
        elif not self.is_ending:
            self._ending_s = now_s
        return []

    def _tick(self, now_s: float) -> list[Action]:
        slept_s = now_s - self._ticked_s
        self._ticked_s = now_s
        if slept_s > self._settings.beat_s:  # a stopped process, a frozen machine
            self._workers.excuse(slept_s, now_s)
            self._jobs.excuse(slept_s, now_s)
        actions = [*self._age_jobs(now_s), *self._age_workers(now_s)]
        if now_s - self._measured_s >= MEASURE_BEATS * self._settings.beat_s:
            self._measured_s = now_s
            self._groups.measure()
        self._groups.refresh_stale(now_s)
        self._fleet.tick(now_s)
        actions += self._decide_budgets(now_s)
        return [*actions, *self._warnings(), *self._end(now_s)]

    def _decide_budgets(self, now_s: float) -> list[Action]:
        workers = [known.worker.worker_id for known in self._workers if not known.is_dead]
        return [Notice("info", text) for text in self._budgets.decide(workers, now_s)]

    def _age_workers(self, now_s: float) -> list[Action]:
        dead, gone = self._workers.age(now_s)
        if dead or gone:
            self._workers_changed(now_s)
        silent = [
            Notice("warning", f"{_name(known)} is dead: silent for {now_s - known.last_s:.1f} s") for known in dead
        ]
        left = [Notice("info", f"{_name(known)} has left") for known in gone if not known.is_dead]
        return [*silent, *left]

    def _age_jobs(self, now_s: float) -> list[Action]:
        ended = self._jobs.age(now_s)
        for entry in ended:
            self._fit(entry.job.key.pipeline, now_s)
            self._last_job_s = now_s
        why = f"is forgotten: its clients are silent for {self._settings.forget_s:g} s"
        return [Notice("warning", f"{_title(entry.job.key)} {why}") for entry in ended if entry.vanished]

    def _end(self, now_s: float) -> list[Action]:
        # A beat of grace: a script that makes one loader after another closes one job just before it opens the next.
        if self._stops_with_jobs and not self.is_ending and not self._jobs:
            is_over = now_s - self._last_job_s >= self._settings.beat_s
            if is_over and (self._jobs.num_opened or not self._needs_a_job):
                self._ending_s = now_s
                self._code = 3 if self._jobs.num_lost else 0
        if self._ending_s is None or self._has_ended:
            return []
        is_waiting = any(not (known.is_dead or known.is_told_to_stop) for known in self._workers)
        if is_waiting and now_s - self._ending_s < self._settings.dead_s:
            return []
        self._has_ended = True
        return [End(self._code)]

    def _workers_changed(self, now_s: float) -> None:
        self._groups.workers_changed(now_s)
        self._fleet.changed()

    def _takes_lanes(self) -> bool:
        """Whether there is a worker that takes lanes of some job that is open, or of any if none is."""
        groups = list(self._groups)
        has_code = bool(groups) and all(group.has_code for group in groups)
        return any(known.can_make(has_code=has_code) for known in self._workers)

    def _fit(self, pipeline: PipelineId, now_s: float) -> None:
        jobs = [entry.job for entry in self._jobs if entry.job.key.pipeline == pipeline]
        self._groups.fit(pipeline, jobs, now_s)

    def _warnings(self) -> list[Action]:
        """One warning for each job whose lanes cannot keep all workers busy."""
        notices: list[Action] = []
        for entry in self._jobs:
            group = self._groups.get(entry.job.key.pipeline)
            if group is None or entry.is_warned or group.num_able <= group.num_lanes:
                continue
            entry.is_warned = True
            text = (
                f"{_title(entry.job.key)} has {group.num_lanes} lanes for {group.num_able} workers: it leaves "
                f"{group.num_able - group.num_lanes} idle; make its pipeline with lanes={group.num_able} or more"
            )
            notices.append(Notice("warning", text))
        return notices


def _name(known: KnownWorker) -> str:
    return f"worker {known.worker.worker_id} ({known.worker.location})"


def _title(key: JobKey) -> str:
    return f"job {key.name!r} of pipeline {key.pipeline[:12]}"
