"""Who keeps ranges for the fleet, told as stories."""

from __future__ import annotations

from dataclasses import replace

from stoker_service.dispatcher.events import DrainAsked, Tick, WorkerBeat, WorkerProbed, WorkerRegistered
from stoker_service.dispatcher.model import Settings, Worker, WorkerId
from stoker_service.dispatcher.state import State
from stoker_service.members import UNTOLD, Members

BEAT_S = 1.0


class Crowd:
    """Workers that beat once a second, each with what it was told last."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.workers: dict[str, Worker] = {}
        self.told: dict[str, Members] = {}
        self.draining: set[str] = set()
        self.restart()

    def restart(self) -> None:
        """Another dispatcher, which knows nothing."""
        self.state = State(Settings("d", beat_s=BEAT_S), self.now_s)

    def join(self, name: str, *, keeps_cache: bool = True, place: str = "") -> None:
        self.workers[name] = Worker(
            WorkerId(name), f"grpc://{place or name}:1", f"host-{place or name}", keeps_cache=keeps_cache
        )
        self.told.setdefault(name, UNTOLD)
        self.state.apply(WorkerRegistered(self.workers[name]), self.now_s)

    def beat(self, name: str) -> bool:
        """Whether it was told something."""
        worker_id = WorkerId(name)
        known = self.told[name].version
        event = WorkerBeat(worker_id, members_version=known, is_draining=name in self.draining)
        self.state.apply(event, self.now_s)
        orders = self.state.orders_for(worker_id)
        if not orders.is_known:
            self.join(name, keeps_cache=self.workers[name].keeps_cache)
            return self.beat(name)
        if orders.members is not None:
            self.told[name] = orders.members
        return orders.members is not None

    def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds / BEAT_S)):
            self.now_s += BEAT_S
            for name in list(self.workers):
                self.beat(name)
            self.state.apply(Tick(), self.now_s)

    def members(self, name: str) -> list[str]:
        return [member.worker_id for member in self.told[name].members]


def running(*names: str) -> Crowd:
    crowd = Crowd()
    for name in names:
        crowd.join(name)
    crowd.pass_time(5)
    return crowd


def test_all_hear_of_all_who_keep_a_cache_and_only_once() -> None:
    crowd = running("b", "a")
    crowd.join("c", keeps_cache=False)
    crowd.pass_time(2)
    assert [crowd.members(name) for name in "abc"] == [["a", "b"]] * 3
    assert crowd.told["a"].members[0].location == "grpc://a:1"
    assert not any(crowd.beat(name) for name in "abc")


def test_who_comes_and_who_goes_is_told() -> None:
    crowd = running("a", "b")
    crowd.join("c")
    crowd.pass_time(1)
    assert crowd.members("a") == ["a", "b", "c"]
    del crowd.workers["b"]
    crowd.pass_time(5)
    assert crowd.members("a") == crowd.members("c") == ["a", "c"]


def test_one_found_dead_by_a_call_is_told_at_once_and_again_when_it_answers() -> None:
    crowd = running("a", "b")
    crowd.state.apply(WorkerProbed(WorkerId("b"), is_alive=False), crowd.now_s)
    assert crowd.beat("a")
    assert crowd.members("a") == ["a"]
    crowd.state.apply(WorkerProbed(WorkerId("b"), is_alive=True), crowd.now_s)
    assert crowd.beat("a")
    assert crowd.members("a") == ["a", "b"]


def test_one_that_drains_keeps_nothing_for_others() -> None:
    crowd = running("a", "b", "c")
    crowd.state.apply(DrainAsked(WorkerId("b")), crowd.now_s)
    crowd.draining.add("c")
    crowd.pass_time(2)
    assert [crowd.members(name) for name in "abc"] == [["a"]] * 3


def test_without_a_cache_there_are_no_members_and_that_is_told() -> None:
    crowd = Crowd()
    crowd.join("a", keeps_cache=False)
    crowd.pass_time(1)
    assert crowd.told["a"].version
    assert crowd.members("a") == []


def test_a_worker_at_another_place_is_other_members() -> None:
    crowd = running("a", "b")
    before = crowd.told["a"].version
    crowd.state.apply(WorkerRegistered(replace(crowd.workers["b"], location="grpc://b:2")), crowd.now_s)
    assert crowd.beat("a")
    assert crowd.told["a"].version != before


def test_a_restart_of_the_dispatcher_moves_nothing() -> None:
    crowd = running("a", "b", "c")
    before = dict(crowd.told)
    crowd.restart()
    crowd.beat("a")  # the only one that it knows
    assert crowd.told == before
    crowd.pass_time(10)
    assert crowd.told == before


def test_one_lost_while_the_dispatcher_was_away_is_told_after_a_while() -> None:
    crowd = running("a", "b", "c")
    del crowd.workers["c"]
    crowd.restart()
    crowd.pass_time(2)
    assert crowd.members("a") == ["a", "b", "c"]
    crowd.pass_time(3)
    assert crowd.members("a") == ["a", "b"]
