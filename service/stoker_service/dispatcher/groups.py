"""The lanes of each pipeline, and who owns them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from stoker_service.dispatcher.assign import assign
from stoker_service.dispatcher.events import Made
from stoker_service.dispatcher.model import Assignment, Job, Owner, PipelineId, Settings, WorkerId
from stoker_service.dispatcher.speeds import relative_speeds
from stoker_service.dispatcher.workers import KnownWorker, Workers, shares, why_none

_MAX_REMEMBERED = 64
_HOLD_BEATS = 1
_LISTEN_BEATS = 2
_LISTEN_S = 3.0  # connections are made again after up to a second, whatever the beat
_JUST_STARTED = "the dispatcher has just started and waits a beat for the workers to tell which lanes they have"

Staleness = Literal["fresh", "soon", "now"]


@dataclass(slots=True)
class Group:
    """All jobs of one pipeline. ``owners`` are the last ones there were, also while nobody is able."""

    pipeline: PipelineId
    num_lanes: int
    has_code: bool
    owners: dict[int, WorkerId] = field(default_factory=dict)
    speeds: dict[WorkerId, float] = field(default_factory=dict)
    assignment: Assignment = field(default_factory=lambda: Assignment(""))
    num_able: int = 0
    is_stale: bool = True

    def held(self) -> Counter[WorkerId]:
        """Lanes by worker; none while nobody is able."""
        return Counter(self.owners.values()) if self.assignment.owners else Counter()


class Groups:
    """Groups of the pipelines that have jobs; recomputed only when told that something has changed."""

    def __init__(self, settings: Settings, workers: Workers, now_s: float) -> None:
        self._settings = settings
        self._workers = workers
        self._groups: dict[PipelineId, Group] = {}
        self._former: dict[PipelineId, dict[int, WorkerId]] = {}
        self._claims: dict[PipelineId, dict[int, list[WorkerId]]] = {}
        self._holds_until_s = now_s + _HOLD_BEATS * settings.beat_s
        self._listens_until_s = now_s + max(_LISTEN_BEATS * settings.beat_s, _LISTEN_S)
        self._num_versions = 0
        self.num_lanes: Counter[WorkerId] = Counter()
        self.num_reassigned = 0

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def get(self, pipeline: PipelineId) -> Group | None:
        return self._groups.get(pipeline)

    def fit(self, pipeline: PipelineId, jobs: Iterable[Job], now_s: float) -> None:
        """Make the pipeline's group what its jobs need, now; no jobs: no group.

        Who owned what is remembered for a while: a job that opens again finds the workers whose caches are warm.
        """
        jobs = list(jobs)
        group = self._groups.get(pipeline)
        if not jobs:
            if group is not None:
                self._forget(group)
            return
        num_lanes, has_code = max(job.num_lanes for job in jobs), any(job.has_code for job in jobs)
        if group is None:
            group = self._groups[pipeline] = Group(pipeline, num_lanes, has_code)
            group.owners = self._former.pop(pipeline, {})
        group.num_lanes, group.has_code = num_lanes, has_code
        self.refresh(group, now_s)

    def claim(self, worker_id: WorkerId, jobs: Iterable[Made], now_s: float) -> None:
        """Note what lanes a worker has by its first beat: they seed the owners after a start of the dispatcher."""
        if now_s > self._listens_until_s:
            self._claims.clear()
            return
        for made in jobs:
            lanes = self._claims.setdefault(made.pipeline, {})
            for lane in made.lanes:
                lanes.setdefault(lane, []).append(worker_id)
            group = self._groups.get(made.pipeline)
            if group is not None and made.lanes:
                group.is_stale = True

    def workers_changed(self, now_s: float) -> None:
        """Someone came, left or is another. Lanes whose owner is lost find another at once, as do those that had none.

        The rest waits for the next tick: workers that start together are then one change, not many.
        """
        for group in self:
            group.is_stale = True
            if not group.assignment.owners or not all(self._is_there(owner) for owner in group.assignment.owners):
                self.refresh(group, now_s)

    def measure(self) -> None:
        """Look at the workers' speeds; where one is another than before, the next refresh deals the lanes anew."""
        for group in self:
            able = self._workers.able(has_code=group.has_code)
            rates = {id_: rate for id_, known in able.items() if (rate := known.rate(group.pipeline)) is not None}
            kept = {id_: speed for id_, speed in group.speeds.items() if id_ in able}
            speeds = relative_speeds(rates, kept)
            group.is_stale = group.is_stale or speeds != group.speeds
            group.speeds = speeds

    def refresh_stale(self, now_s: float) -> None:
        for group in self:
            if group.is_stale:
                self.refresh(group, now_s)

    def refresh(self, group: Group, now_s: float) -> None:
        """Deal the lanes out to those who are able now; publish the outcome if it differs from the last one."""
        able = self._workers.able(has_code=group.has_code)
        before = self._before(group, able)
        if now_s < self._holds_until_s and len(before) < group.num_lanes:
            if not group.assignment.owners:
                group.assignment = Assignment("", reason=_JUST_STARTED)
            return
        group.is_stale, group.num_able = False, len(able)
        held = group.held()
        busy = {id_: self.num_lanes[id_] - held[id_] for id_ in able}
        owners = assign(group.pipeline, group.num_lanes, shares(able, group.speeds), before, busy)
        self._publish(group, owners, able)
        if owners:
            self._claims.pop(group.pipeline, None)  # they are met, or outvoted: they count once

    def _before(self, group: Group, able: Mapping[WorkerId, KnownWorker]) -> dict[int, WorkerId]:
        """Owners to start from: the last ones, and above them those who claim to have a lane open."""
        before = {lane: owner for lane, owner in group.owners.items() if owner in able and lane < group.num_lanes}
        for lane, claimants in self._claims.get(group.pipeline, {}).items():
            first = next((worker_id for worker_id in claimants if worker_id in able), None)
            if first is not None and lane < group.num_lanes:
                before[lane] = first
        return before

    def _publish(self, group: Group, owners: dict[int, WorkerId], able: Mapping[WorkerId, KnownWorker]) -> None:
        reason = "" if owners else why_none(self._workers, has_code=group.has_code)
        entries = []
        for lane, worker_id in owners.items():
            worker = able[worker_id].worker
            entries.append(Owner(lane, worker_id, worker.location, worker.host_id))
        published = tuple(entries)
        last = group.assignment
        if last.version and (last.owners, last.reason) == (published, reason):
            return
        self._count_out(group)
        if owners:
            moved = (lane for lane, owner in owners.items() if group.owners.get(lane, owner) != owner)
            self.num_reassigned += sum(1 for _ in moved)
            group.owners = owners
        self._num_versions += 1
        version = f"{self._settings.dispatcher_id}-{self._num_versions}"
        is_refusal = not owners and self._workers.refuse(has_code=group.has_code)
        group.assignment = Assignment(version, published, reason, is_refusal)
        self.num_lanes.update(group.held())

    def _forget(self, group: Group) -> None:
        self._count_out(group)
        del self._groups[group.pipeline]
        if len(self._former) >= _MAX_REMEMBERED:
            del self._former[next(iter(self._former))]
        self._former[group.pipeline] = group.owners

    def _count_out(self, group: Group) -> None:
        self.num_lanes.subtract(group.held())
        self.num_lanes = +self.num_lanes  # without those that own nothing any more

    def _is_there(self, owner: Owner) -> bool:
        known = self._workers.get(owner.worker_id)
        return known is not None and known.takes_lanes and known.worker.location == owner.location
