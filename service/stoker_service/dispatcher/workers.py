"""The workers that are known: alive, draining or dead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from stoker_service.dispatcher.events import Made, Probe, WorkerBeat
from stoker_service.dispatcher.meter import Meter
from stoker_service.dispatcher.model import PipelineId, Settings, Worker, WorkerId

WorkerState = Literal["alive", "draining", "dead"]

METER_BEATS = 5
"""Rates are those of the last 5 to 10 beats."""

MIN_DECODE_S = 1.0
"""A worker's speed is known once its threads have decoded for so long."""


@dataclass(slots=True)
class KnownWorker:
    """One worker. ``is_suspect``: it was found dead by a call of ours, so a beat alone does not revive it."""

    worker: Worker
    last_s: float
    meter: Meter
    beat: WorkerBeat | None = None
    is_dead: bool = False
    is_suspect: bool = False
    is_asked_to_drain: bool = False
    is_told_to_stop: bool = False
    answered_s: float = float("-inf")
    reported_s: float = float("-inf")
    made: dict[PipelineId, Meter] = field(default_factory=dict)

    @property
    def state(self) -> WorkerState:
        if self.is_dead:
            return "dead"
        return "draining" if self.is_draining else "alive"

    @property
    def is_draining(self) -> bool:
        return self.is_asked_to_drain or (self.beat is not None and self.beat.is_draining)

    def probe(self) -> Probe:
        return Probe(self.worker.worker_id, self.worker.location)

    @property
    def takes_lanes(self) -> bool:
        return not (self.is_dead or self.is_draining)

    def can_make(self, *, has_code: bool) -> bool:
        return self.takes_lanes and (self.worker.allows_code or not has_code)

    def rate(self, pipeline: PipelineId) -> float | None:
        """Rows per second of one decoding thread: of late, else since its start; None if it has decoded too little."""
        meter = self.made.get(pipeline)
        if meter is None or meter.last is None:
            return None
        for sums in (meter.change(), meter.last):
            if sums is not None and sums[2] >= MIN_DECODE_S and sums[1] > 0:
                return sums[1] / sums[2]
        return None

    def rows_per_s(self, pipeline: PipelineId | None = None) -> float:
        """Rows that it made per second of late, for one pipeline or all; 0 before two beats."""
        meter = self.meter if pipeline is None else self.made.get(pipeline)
        change = meter.change() if meter is not None else None
        return change[1] / change[0] if change else 0.0


class Workers:
    """All workers that are not forgotten. Methods that change who takes lanes return whether they did."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: dict[WorkerId, KnownWorker] = {}

    def __iter__(self) -> Iterator[KnownWorker]:
        return iter(self._known.values())

    def __len__(self) -> int:
        return len(self._known)

    def get(self, worker_id: WorkerId) -> KnownWorker | None:
        return self._known.get(worker_id)

    def named(self, prefix: str) -> tuple[WorkerId, ...]:
        """The ids that begin with ``prefix``; only the one that equals it, if there is one."""
        if prefix in self._known:
            return (WorkerId(prefix),)
        return tuple(sorted(worker_id for worker_id in self._known if worker_id.startswith(prefix)))

    def register(self, worker: Worker, now_s: float) -> bool:
        """Take a worker in, again or for the first time. One that listened at its place before is gone."""
        for other in [known for known in self if _replaces(worker, known.worker)]:
            del self._known[other.worker.worker_id]
        known = self._known.get(worker.worker_id)
        if known is None or known.worker != worker:
            self._known[worker.worker_id] = KnownWorker(worker, now_s, self._new_meter())
            return True
        known.last_s = now_s
        was_dead, known.is_dead, known.is_suspect = known.is_dead, False, False
        return was_dead

    def beat(self, known: KnownWorker, beat: WorkerBeat, now_s: float) -> bool:
        """Take in what a worker tells. A dead one that tells something lives, unless it is suspect."""
        took_lanes = known.takes_lanes
        known.beat, known.last_s = beat, now_s
        if not known.is_suspect:
            known.is_dead = False
        num_rows = 0
        for made in beat.jobs:
            num_rows += made.rows
            self._meter_of(known, made).add((now_s, made.rows, made.decode_s))
        if len(known.made) > len(beat.jobs):
            told = {made.pipeline for made in beat.jobs}
            known.made = {pipeline: meter for pipeline, meter in known.made.items() if pipeline in told}
        known.meter.add((now_s, num_rows))
        return known.takes_lanes is not took_lanes

    def doubt(self, known: KnownWorker, now_s: float) -> tuple[list[Probe], bool]:
        """Ask for a call to a worker that someone could not reach, unless the answer is known.

        Also returns whether this is the first doubt in a beat: what a thousand ranks report is worth one line.
        """
        is_first = now_s - known.reported_s >= self._settings.beat_s
        if is_first:
            known.reported_s = now_s
        is_answered = known.is_dead or now_s - known.answered_s < self._settings.beat_s
        return ([] if is_answered else [known.probe()]), is_first

    def probed(self, known: KnownWorker, *, is_alive: bool, now_s: float) -> bool:
        took_lanes = known.takes_lanes
        known.is_dead = known.is_suspect = not is_alive
        if is_alive:
            known.last_s = known.answered_s = now_s
        return known.takes_lanes is not took_lanes

    def age(self, now_s: float) -> tuple[list[KnownWorker], list[KnownWorker]]:
        """Declare dead who is silent, forget who is so for long; returns both. A silent one that drained has left."""
        dead: list[KnownWorker] = []
        gone: list[KnownWorker] = []
        for known in self:
            silent_s = now_s - known.last_s
            if silent_s <= self._settings.dead_s:
                continue
            if known.is_draining or silent_s > self._settings.forget_s:
                gone.append(known)
            elif not known.is_dead:
                known.is_dead = True
                dead.append(known)
        for known in gone:
            del self._known[known.worker.worker_id]
        return dead, gone

    def excuse(self, slept_s: float, now_s: float) -> None:
        """Nobody could beat while we slept: count that time for nobody's silence."""
        for known in self:
            known.last_s = min(now_s, known.last_s + slept_s)

    def refuse(self, *, has_code: bool) -> bool:
        """Whether workers take lanes, and none of them makes such a pipeline."""
        taking = [known for known in self if known.takes_lanes]
        return bool(taking) and not any(known.can_make(has_code=has_code) for known in taking)

    def able(self, *, has_code: bool) -> dict[WorkerId, KnownWorker]:
        """Those who may own lanes of a pipeline."""
        return {id_: known for id_, known in self._known.items() if known.can_make(has_code=has_code)}

    def _new_meter(self) -> Meter:
        return Meter(METER_BEATS * self._settings.beat_s)

    def _meter_of(self, known: KnownWorker, made: Made) -> Meter:
        meter = known.made.get(made.pipeline)
        if meter is None:
            meter = known.made[made.pipeline] = self._new_meter()
        return meter


def why_none(workers: Workers, *, has_code: bool) -> str:
    """Say why no worker is able to make a pipeline, and what to do."""
    states = [known.state for known in workers]
    if not states:
        return "no worker is there: expected at least one, found none; start one with `stoker worker`"
    if "alive" not in states:
        found = f"{states.count('draining')} that drain and {states.count('dead')} that are dead"
        return f"no worker takes lanes: expected at least one, found {found}; start one with `stoker worker`"
    assert has_code, "workers that are alive can make what holds no code"
    return (
        "the job holds users' code (functions, or a dataset): expected a worker that runs it, found "
        f"{states.count('alive')} that do not; start workers with --allow-code"
    )


def shares(able: Mapping[WorkerId, KnownWorker], speeds: Mapping[WorkerId, float]) -> dict[WorkerId, float]:
    """Weights for :func:`assign`: threads times speed; who is not measured has the median's speed, 1."""
    return {id_: max(1, known.worker.num_threads) * speeds.get(id_, 1.0) for id_, known in able.items()}


def _replaces(worker: Worker, other: Worker) -> bool:
    """Whether they cannot both live: one place of one machine. Without a machine's name a place may be another's."""
    is_same_place = worker.location == other.location and worker.host_id == other.host_id != ""
    return is_same_place and worker.worker_id != other.worker_id
