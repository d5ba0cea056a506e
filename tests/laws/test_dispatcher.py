"""What must hold of the dispatcher, whatever happened before."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from stoker_service.dispatcher.events import DrainAsked, End, WorkerBeat
from stoker_service.dispatcher.model import Assignment, PipelineId, WorkerId
from support.fleet import Fleet

PIPELINES = ["p", "q"]
some = st.integers(0, 1000)


class Chaos(RuleBasedStateMachine):
    """Workers and clients come, go, hang and drain; the dispatcher is killed and started anew."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet()
        self.hanging: dict[str, WorkerBeat] = {}
        self.num_named = 0
        self.seen: dict[str, Assignment] = {}

    def name(self, kind: str) -> str:
        self.num_named += 1
        return f"{kind} {self.num_named}"

    def pick(self, names: dict[str, WorkerBeat], choice: int) -> str:
        return sorted(names)[choice % len(names)]

    @rule(num_threads=st.integers(1, 8), allows_code=st.booleans())
    def a_worker_joins(self, num_threads: int, allows_code: bool) -> None:
        self.fleet.join(self.name("worker"), num_threads=num_threads, allows_code=allows_code)

    @precondition(lambda self: self.fleet.workers)
    @rule(choice=some)
    def a_worker_crashes(self, choice: int) -> None:
        del self.fleet.workers[self.pick(self.fleet.workers, choice)]

    @precondition(lambda self: self.fleet.workers)
    @rule(choice=some)
    def a_worker_hangs(self, choice: int) -> None:
        name = self.pick(self.fleet.workers, choice)
        self.hanging[name] = self.fleet.workers.pop(name)

    @precondition(lambda self: self.hanging)
    @rule(choice=some)
    def a_worker_goes_on(self, choice: int) -> None:
        name = self.pick(self.hanging, choice)
        self.fleet.workers[name] = self.hanging.pop(name)

    @precondition(lambda self: self.fleet.workers)
    @rule(choice=some)
    def a_worker_drains(self, choice: int) -> None:
        name = self.pick(self.fleet.workers, choice)
        self.fleet.tell(DrainAsked(WorkerId(name)))
        self.fleet.workers[name] = replace(self.fleet.workers[name], is_draining=True)

    @precondition(lambda self: self.fleet.workers and self.fleet.clients)
    @rule(choice=some, is_alive=st.booleans())
    def a_worker_is_reported(self, choice: int, is_alive: bool) -> None:
        name = self.pick(self.fleet.workers, choice)
        self.fleet.report(min(self.fleet.clients), name)
        self.fleet.probed(name, is_alive=is_alive)

    @rule(pipeline=st.sampled_from(PIPELINES), lanes=st.integers(1, 12), rank=st.integers(0, 2), code=st.booleans())
    def a_job_is_opened(self, pipeline: str, lanes: int, rank: int, code: bool) -> None:
        self.fleet.open(self.name("client"), pipeline=pipeline, lanes=lanes, rank=rank, code=code)

    @precondition(lambda self: self.fleet.clients)
    @rule()
    def a_client_leaves(self) -> None:
        self.fleet.close(min(self.fleet.clients))

    @precondition(lambda self: self.fleet.clients)
    @rule()
    def a_client_vanishes(self) -> None:
        del self.fleet.clients[min(self.fleet.clients)]

    @rule(quarters=st.integers(1, 20))
    def time_passes(self, quarters: int) -> None:
        self.fleet.pass_time(quarters / 4)

    @rule()
    def the_dispatcher_is_started_anew(self) -> None:
        self.fleet.restart(self.name("dispatcher"))

    @rule()
    def all_is_calm_for_a_while(self) -> None:
        """Who beats and answers then owns what there is, all of it."""
        self.fleet.pass_time(5)
        for name in self.fleet.workers:
            self.fleet.probed(name, is_alive=True)
        self.fleet.pass_time(1)
        states = self.fleet.states()
        for name, beat in self.fleet.workers.items():
            assert states[name] == ("draining" if beat.is_draining else "alive")
        for job in self.fleet.state.snapshot(self.fleet.now_s).jobs:
            owners = [owner.worker_id for owner in job.assignment.owners]
            assert all(states[owner] == "alive" and owner in self.fleet.workers for owner in owners)
            assert (len(owners) >= job.job.num_lanes) is not bool(job.assignment.reason)

    @invariant()
    def a_version_means_the_same_owners_for_ever(self) -> None:
        for pipeline in PIPELINES:
            assignment = self.fleet.state.assignment_of(PipelineId(pipeline))
            if assignment.version:
                assert self.seen.setdefault(assignment.version, assignment) == assignment

    @invariant()
    def every_lane_has_an_owner_or_there_is_a_reason(self) -> None:
        for job in self.fleet.state.snapshot(self.fleet.now_s).jobs:
            lanes = [owner.lane for owner in job.assignment.owners]
            assert lanes == list(range(len(lanes)))
            assert bool(lanes) is not bool(job.assignment.reason)

    @invariant()
    def lanes_are_counted_right(self) -> None:
        snapshot = self.fleet.state.snapshot(self.fleet.now_s)
        assigned = {job.job.key.pipeline: len(job.assignment.owners) for job in snapshot.jobs}
        dead = [view for view in snapshot.workers if view.state != "alive" and view.num_lanes]
        assert sum(view.num_lanes for view in snapshot.workers) == sum(assigned.values())
        assert not dead

    @invariant()
    def nobody_asked_for_the_end(self) -> None:
        assert not any(isinstance(action, End) for action in self.fleet.actions)


TestChaos = Chaos.TestCase
TestChaos.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
