"""What the dispatcher decides, told as stories: no network, thread or sleep."""

from __future__ import annotations

from dataclasses import replace

from stoker_service.dispatcher.events import DrainAsked, End, Notice, Probe, StopAsked, Tick
from stoker_service.dispatcher.model import PipelineId, Settings, WorkerId
from support.fleet import Fleet, running


def moved(before: dict[int, str], after: dict[int, str]) -> set[int]:
    return {lane for lane in before if before[lane] != after.get(lane)}


def warnings(fleet: Fleet) -> list[str]:
    return [action.text for action in fleet.actions if isinstance(action, Notice) and action.level == "warning"]


def ends(fleet: Fleet) -> list[int]:
    return [action.code for action in fleet.actions if isinstance(action, End)]


class TestLanes:
    def test_every_lane_of_a_job_has_an_owner(self) -> None:
        fleet = running("a", "b", "c")
        assert sorted(fleet.owners()) == list(range(8))
        assert sorted(fleet.counts().values()) == [2, 3, 3]

    def test_beats_change_no_owner(self) -> None:
        fleet = running("a", "b", "c")
        before = fleet.state.assignment_of(PipelineId("p"))
        fleet.pass_time(60)
        assert fleet.state.assignment_of(PipelineId("p")) is before

    def test_a_worker_that_joins_takes_its_part_at_the_next_tick_and_nothing_else_moves(self) -> None:
        fleet = running("a", "b")
        before = fleet.owners()
        fleet.join("c")
        fleet.join("d")
        assert fleet.owners() == before
        fleet.pass_time(0.25)
        after = fleet.owners()
        assert fleet.counts() == {"a": 2, "b": 2, "c": 2, "d": 2}
        assert {after[lane] for lane in moved(before, after)} == {"c", "d"}

    def test_jobs_of_one_pipeline_share_owners(self) -> None:
        fleet = running("a", "b")
        version = fleet.version()
        fleet.open("other", name="second")
        assert fleet.version() == version

    def test_jobs_of_other_pipelines_go_where_fewer_lanes_are(self) -> None:
        fleet = running("a", "b", "c", "d", lanes=2)
        fleet.open("other", pipeline="q", lanes=2)
        assert len({*fleet.owners("p").values(), *fleet.owners("q").values()}) == 4

    def test_small_jobs_spread_over_a_worker_that_joins(self) -> None:
        fleet = running("a", lanes=1)
        for index in range(7):
            fleet.open(f"client {index}", pipeline=f"q{index}", lanes=1)
        fleet.join("b")
        fleet.pass_time(1)
        owners = [
            owner
            for pipeline in ["p", *(f"q{index}" for index in range(7))]
            for owner in fleet.owners(pipeline).values()
        ]
        assert owners.count("b") == 4
        version = fleet.version()
        fleet.pass_time(60)
        assert fleet.version() == version

    def test_a_worker_of_more_threads_owns_more_lanes(self) -> None:
        fleet = Fleet()
        fleet.join("big", num_threads=24)
        fleet.join("small", num_threads=8)
        fleet.open("client")
        fleet.pass_time(2)
        assert fleet.counts() == {"big": 6, "small": 2}

    def test_a_worker_measured_to_be_faster_owns_more_lanes(self) -> None:
        fleet = running("fast", "slow")
        for second in range(1, 30):
            fleet.has_lanes("fast", rows=300 * second, decode_s=second)
            fleet.has_lanes("slow", rows=100 * second, decode_s=second)
            fleet.pass_time(1)
        assert fleet.counts() == {"fast": 6, "slow": 2}

    def test_noise_in_what_is_measured_moves_nothing(self) -> None:
        fleet = running("a", "b", "c")
        version, rows = fleet.version(), {"a": 0, "b": 0, "c": 0}
        for second in range(1, 120):
            for index, name in enumerate(rows):
                rows[name] += (90, 100, 110)[(second // 25 + index) % 3]
                fleet.has_lanes(name, rows=rows[name], decode_s=second)
            fleet.pass_time(1)
        assert fleet.version() == version

    def test_a_job_opened_again_finds_its_workers(self) -> None:
        fleet = running("a", "b", "c")
        before = fleet.owners()
        fleet.close("client")
        assert fleet.owners() == {}
        fleet.open("client again")
        assert fleet.owners() == before

    def test_more_workers_than_lanes_is_one_warning_for_each_job(self) -> None:
        fleet = running("a", "b", "c", lanes=2)
        fleet.join("d")
        fleet.pass_time(10)
        (text,) = warnings(fleet)
        assert "job 'train'" in text
        assert "2 lanes for 3 workers: it leaves 1 idle" in text
        assert "lanes=3" in text


class TestNobodyAble:
    def test_no_worker_at_all_is_the_reason_until_one_comes(self) -> None:
        fleet = Fleet()
        fleet.pass_time(3)
        fleet.open("client")
        assert "no worker is there" in fleet.reason()
        fleet.join("a")
        assert fleet.counts() == {"a": 8}
        assert fleet.reason() == ""

    def test_a_pipeline_with_code_goes_only_to_workers_that_allow_it(self) -> None:
        fleet = Fleet()
        fleet.join("plain")
        fleet.pass_time(3)
        fleet.open("client", code=True)
        assert "found 1 that do not; start workers with --allow-code" in fleet.reason()
        assert fleet.refuses()
        fleet.join("trusting", allows_code=True)
        assert fleet.counts() == {"trusting": 8}

    def test_the_only_worker_drains(self) -> None:
        fleet = running("a")
        fleet.tell(DrainAsked(WorkerId("a")))
        assert fleet.owners() == {}
        assert "1 that drain" in fleet.reason()

    def test_a_worker_that_comes_back_finds_its_lanes(self) -> None:
        fleet = running("a")
        before, beats = fleet.owners(), dict(fleet.workers)
        fleet.workers.clear()
        fleet.pass_time(5)
        assert "1 that are dead" in fleet.reason()
        fleet.workers.update(beats)
        fleet.pass_time(1)
        assert fleet.owners() == before
        assert fleet.state.snapshot(fleet.now_s).num_reassigned == 0


class TestDeath:
    def test_three_missed_beats_are_death_and_only_its_lanes_move(self) -> None:
        fleet = running("a", "b", "c")
        before = fleet.owners()
        del fleet.workers["b"]
        fleet.pass_time(3)
        assert fleet.owners() == before
        fleet.pass_time(0.25)
        assert fleet.states()["b"] == "dead"
        assert moved(before, fleet.owners()) == {lane for lane, owner in before.items() if owner == "b"}
        assert any("worker b (grpc://b:1) is dead: silent for 3." in text for text in warnings(fleet))

    def test_a_dead_worker_is_forgotten_after_a_time(self) -> None:
        fleet = running("a", "b")
        del fleet.workers["b"]
        fleet.pass_time(61)
        assert fleet.states() == {"a": "alive"}

    def test_a_dead_worker_that_beats_again_is_alive(self) -> None:
        fleet = running("a", "b")
        beat = fleet.workers.pop("b")
        fleet.pass_time(4)
        assert fleet.counts() == {"a": 8}
        fleet.workers["b"] = beat
        fleet.pass_time(1)
        assert fleet.counts() == {"a": 4, "b": 4}

    def test_a_report_is_believed_when_the_dispatcher_cannot_reach_the_worker_either(self) -> None:
        fleet = running("a", "b")
        told = Notice("info", "client client cannot reach worker b (grpc://b:1): connection refused")
        assert fleet.report("client", "b") == [told, Probe(WorkerId("b"), "grpc://b:1")]
        assert fleet.report("client", "b") == [Probe(WorkerId("b"), "grpc://b:1")]  # one line a beat is enough
        assert fleet.counts() == {"a": 4, "b": 4}
        fleet.probed("b", is_alive=False)
        assert fleet.counts() == {"a": 8}
        assert fleet.state.is_dead(WorkerId("b"))

    def test_a_report_of_a_worker_that_answers_changes_nothing_and_is_not_checked_twice_in_a_beat(self) -> None:
        fleet = running("a", "b")
        version = fleet.version()
        fleet.report("client", "b")
        fleet.probed("b", is_alive=True)
        assert (fleet.version(), fleet.report("client", "b")) == (version, [])
        fleet.pass_time(1)
        assert Probe(WorkerId("b"), "grpc://b:1") in fleet.report("client", "b")

    def test_a_dead_or_unknown_worker_needs_no_check(self) -> None:
        fleet = running("a", "b")
        fleet.report("client", "b")
        fleet.probed("b", is_alive=False)
        assert fleet.report("client", "b") == []
        assert fleet.report("client", "nobody") == []
        assert fleet.state.is_dead(WorkerId("nobody"))

    def test_a_worker_that_beats_but_cannot_be_reached_gets_lanes_only_after_it_answers(self) -> None:
        fleet = running("a", "b")
        fleet.report("client", "b")
        fleet.probed("b", is_alive=False)
        actions = fleet.pass_time(2)
        assert actions.count(Probe(WorkerId("b"), "grpc://b:1")) == 2
        assert fleet.counts() == {"a": 8}
        fleet.probed("b", is_alive=True)
        fleet.pass_time(0.25)
        assert fleet.counts() == {"a": 4, "b": 4}

    def test_a_worker_started_again_at_the_same_place_replaces_the_old_one_at_once(self) -> None:
        fleet = Fleet()
        fleet.join("old", host="h")
        fleet.open("client")
        fleet.pass_time(2)
        del fleet.workers["old"]
        fleet.join("new", host="h")
        assert fleet.counts() == {"new": 8}
        assert fleet.states() == {"new": "alive"}

    def test_time_in_which_the_dispatcher_slept_makes_nobody_dead(self) -> None:
        fleet = running("a", "b")
        version = fleet.version()
        fleet.now_s += 100
        fleet.tell(Tick())
        assert fleet.version() == version
        assert fleet.states() == {"a": "alive", "b": "alive"}
        assert fleet.state.num_jobs == 1


class TestDrain:
    def test_a_draining_worker_hands_over_its_lanes_and_is_told(self) -> None:
        fleet = running("a", "b", "c")
        before = fleet.owners()
        fleet.tell(DrainAsked(WorkerId("b")))
        assert "b" not in fleet.counts()
        assert moved(before, fleet.owners()) == {lane for lane, owner in before.items() if owner == "b"}
        assert fleet.state.orders_for(WorkerId("b")).should_drain
        assert fleet.states()["b"] == "draining"

    def test_a_worker_that_drains_by_itself_is_as_one_that_was_asked(self) -> None:
        fleet = running("a", "b")
        fleet.workers["b"] = replace(fleet.workers["b"], is_draining=True)
        fleet.pass_time(1)
        assert fleet.counts() == {"a": 8}

    def test_who_drains_alone_is_told_that_nobody_can_take_its_lanes(self) -> None:
        fleet = running("a", "b")
        fleet.workers["b"] = replace(fleet.workers["b"], is_draining=True)
        fleet.pass_time(1)
        assert not fleet.state.orders_for(WorkerId("b")).is_last
        fleet.tell(DrainAsked(WorkerId("a")))
        assert fleet.state.orders_for(WorkerId("a")).is_last
        assert fleet.state.orders_for(WorkerId("b")).is_last
        fleet.join("c")
        assert not fleet.state.orders_for(WorkerId("b")).is_last

    def test_who_does_not_drain_is_not_told_so(self) -> None:
        assert not running("a").state.orders_for(WorkerId("a")).is_last

    def test_who_may_not_run_code_takes_over_nothing_where_all_jobs_hold_some(self) -> None:
        fleet = Fleet()
        fleet.join("a", allows_code=True)
        fleet.join("b")
        fleet.open("client", code=True)
        fleet.pass_time(3)
        fleet.tell(DrainAsked(WorkerId("a")))
        assert fleet.state.orders_for(WorkerId("a")).is_last
        fleet.open("other", pipeline="q")
        assert not fleet.state.orders_for(WorkerId("a")).is_last

    def test_a_dead_worker_takes_over_nothing(self) -> None:
        fleet = running("a", "b")
        del fleet.workers["a"]
        fleet.pass_time(5)
        fleet.tell(DrainAsked(WorkerId("b")))
        assert fleet.state.orders_for(WorkerId("b")).is_last

    def test_a_drained_worker_that_falls_silent_has_left_without_alarm(self) -> None:
        fleet = running("a", "b")
        fleet.tell(DrainAsked(WorkerId("b")))
        del fleet.workers["b"]
        fleet.pass_time(5)
        assert fleet.states() == {"a": "alive"}
        assert warnings(fleet) == []

    def test_workers_are_found_by_the_beginning_of_their_id(self) -> None:
        fleet = running("abc", "abd", "ab")
        assert fleet.state.workers_named("abc") == ("abc",)
        assert fleet.state.workers_named("ab") == ("ab",)
        assert fleet.state.workers_named("a") == ("ab", "abc", "abd")
        assert fleet.state.workers_named("x") == ()


class TestRestart:
    def test_lanes_that_run_do_not_move(self) -> None:
        fleet = running("a", "b", "c", lanes=9)
        lanes = {"a": (0, 1, 2), "b": (3, 4, 5), "c": (6, 7, 8)}
        for worker, numbers in lanes.items():
            fleet.has_lanes(worker, *numbers)
        fleet.restart("second")
        fleet.pass_time(4)
        assert fleet.owners() == {lane: worker for worker, numbers in lanes.items() for lane in numbers}
        assert fleet.state.snapshot(fleet.now_s).num_reassigned == 0

    def test_a_client_that_comes_before_the_workers_is_asked_to_wait(self) -> None:
        fleet = running("a")
        fleet.restart("second")
        fleet.tell(fleet.descriptions["client"])
        assert (fleet.version(), fleet.owners()) == ("", {})
        assert "just started" in fleet.reason()

    def test_as_soon_as_workers_claim_all_lanes_there_is_no_waiting(self) -> None:
        fleet = running("a", "b", lanes=4)
        fleet.has_lanes("a", 0, 1)
        fleet.has_lanes("b", 2, 3)
        fleet.restart("second")
        fleet.beat()
        fleet.tell(Tick())
        assert fleet.owners() == {0: "a", 1: "a", 2: "b", 3: "b"}

    def test_a_worker_that_is_late_by_a_beat_gets_back_what_it_has(self) -> None:
        fleet = running("a", "b", lanes=4)
        fleet.has_lanes("a", 0, 1)
        fleet.has_lanes("b", 2, 3)
        late = fleet.workers.pop("b")
        fleet.restart("second")
        fleet.pass_time(1.5)
        assert fleet.counts() == {"a": 4}
        fleet.workers["b"] = late
        fleet.pass_time(0.5)
        fleet.beat()
        fleet.tell(Tick())
        assert fleet.owners() == {0: "a", 1: "a", 2: "b", 3: "b"}

    def test_a_claim_counts_once(self) -> None:
        fleet = running("a", "b", lanes=4)
        fleet.has_lanes("a", 0, 1)
        fleet.has_lanes("b", 2, 3)
        fleet.restart("second")
        fleet.beat()
        fleet.join("e")
        fleet.join("g")
        fleet.tell(Tick())
        version, owners = fleet.version(), fleet.owners()
        assert fleet.counts() == {"a": 1, "b": 1, "e": 1, "g": 1}
        for late in ("c", "d", "f", "h"):  # there is no lane for them, so nothing moves
            fleet.join(late)
        fleet.tell(Tick())
        assert (fleet.version(), fleet.owners()) == (version, owners)

    def test_a_new_job_has_owners_within_two_beats(self) -> None:
        fleet = Fleet()
        fleet.open("client")
        fleet.join("a")
        fleet.pass_time(1)
        assert fleet.counts() == {"a": 8}

    def test_versions_of_two_dispatchers_never_meet(self) -> None:
        fleet = running("a")
        first = fleet.version()
        fleet.restart("second")
        fleet.pass_time(3)
        assert fleet.version() != first

    def test_a_worker_that_drains_still_drains(self) -> None:
        fleet = running("a", "b")
        fleet.workers["b"] = replace(fleet.workers["b"], is_draining=True)
        fleet.restart("second")
        fleet.pass_time(2)
        assert fleet.counts() == {"a": 8}


class TestJobsEnd:
    def until_jobs_end(self) -> Fleet:
        fleet = Fleet(Settings("first", until_jobs_end=True))
        fleet.join("a")
        fleet.pass_time(5)
        return fleet

    def test_a_job_ends_with_its_last_client(self) -> None:
        fleet = running("a")
        fleet.open("second", rank=1)
        fleet.close("client")
        assert fleet.state.num_jobs == 1
        fleet.close("second")
        assert fleet.state.num_jobs == 0

    def test_a_job_whose_clients_are_silent_is_forgotten_after_a_time(self) -> None:
        fleet = running("a")
        del fleet.clients["client"]
        fleet.pass_time(59)
        assert fleet.state.num_jobs == 1
        fleet.pass_time(3)
        assert fleet.state.num_jobs == 0
        assert any("job 'train'" in text and "is forgotten" in text for text in warnings(fleet))

    def test_a_silent_client_whose_rank_was_taken_up_holds_nothing_back(self) -> None:
        fleet = self.until_jobs_end()
        fleet.open("killed")
        fleet.pass_time(2)
        del fleet.clients["killed"]
        fleet.open("resumed")
        fleet.pass_time(2)
        assert fleet.state.num_jobs == 1
        fleet.close("resumed")
        fleet.pass_time(6)
        assert ends(fleet) == [0]

    def test_a_rank_that_comes_back_after_it_was_forgotten_is_not_lost(self) -> None:
        fleet = self.until_jobs_end()
        fleet.open("steady", rank=0)
        fleet.open("killed", rank=1)
        del fleet.clients["killed"]
        fleet.pass_time(70)
        fleet.open("resumed", rank=1)
        fleet.close("resumed")
        fleet.close("steady")
        fleet.pass_time(6)
        assert ends(fleet) == [0]

    def test_nothing_ends_before_there_was_a_job(self) -> None:
        fleet = self.until_jobs_end()
        fleet.pass_time(100)
        assert ends(fleet) == []

    def test_when_the_last_job_ends_workers_are_told_and_then_all_ends(self) -> None:
        fleet = self.until_jobs_end()
        fleet.open("client")
        fleet.pass_time(5)
        fleet.close("client")
        fleet.pass_time(1)
        assert fleet.state.orders_for(WorkerId("a")).should_stop
        assert fleet.state.is_ending
        assert ends(fleet) == []
        fleet.pass_time(1)
        assert ends(fleet) == [0]
        fleet.pass_time(10)
        assert ends(fleet) == [0]

    def test_a_loader_that_follows_within_a_beat_keeps_the_service(self) -> None:
        fleet = self.until_jobs_end()
        for epoch in range(3):
            fleet.open(f"epoch {epoch}")
            fleet.pass_time(3)
            fleet.close(f"epoch {epoch}")
            fleet.pass_time(0.5)
        assert not fleet.state.is_ending

    def test_a_worker_that_hangs_does_not_hold_up_the_end(self) -> None:
        fleet = self.until_jobs_end()
        fleet.open("client")
        fleet.pass_time(1)
        fleet.close("client")
        fleet.workers.clear()
        fleet.pass_time(5)
        assert ends(fleet) == [0]

    def test_a_job_whose_clients_vanished_is_exit_code_three(self) -> None:
        fleet = self.until_jobs_end()
        fleet.open("client")
        fleet.pass_time(1)
        fleet.clients.clear()
        fleet.pass_time(70)
        assert ends(fleet) == [3]

    def test_stop_ends_at_once_whatever_runs(self) -> None:
        fleet = running("a")
        fleet.tell(StopAsked())
        assert fleet.state.orders_for(WorkerId("a")).should_stop
        fleet.pass_time(1)
        assert ends(fleet) == [0]

    def test_stop_when_jobs_end_waits_for_the_job(self) -> None:
        fleet = running("a")
        fleet.tell(StopAsked(when_jobs_end=True))
        fleet.pass_time(10)
        assert ends(fleet) == []
        fleet.close("client")
        fleet.pass_time(3)
        assert ends(fleet) == [0]

    def test_stop_when_jobs_end_without_a_job_ends_soon(self) -> None:
        fleet = Fleet()
        fleet.join("a")
        fleet.tell(StopAsked(when_jobs_end=True))
        fleet.pass_time(3)
        assert ends(fleet) == [0]


class TestSnapshot:
    def test_rates_are_those_of_late(self) -> None:
        fleet = running("a")
        for second in range(1, 41):
            rows = 100 * min(second, 20) + 10 * max(0, second - 20)
            fleet.has_lanes("a", rows=rows, decode_s=second / 2)
            beat = fleet.clients["client"]
            fleet.clients["client"] = replace(beat, rows=rows, wait_s=second / 4, active_s=float(second))
            fleet.pass_time(1)
        snapshot = fleet.state.snapshot(fleet.now_s)
        (worker,), (job,) = snapshot.workers, snapshot.jobs
        assert (round(worker.rows_per_s), worker.num_lanes, worker.silent_s) == (10, 8, 0.0)
        (client,) = job.clients
        assert (round(client.rows_per_s), client.starved_fraction) == (10, 0.25)

    def test_waiting_trainers_want_more_workers(self) -> None:
        fleet = running("a")
        for second in range(1, 21):
            fleet.has_lanes("a", rows=100 * second, decode_s=second)
            beat = fleet.clients["client"]
            fleet.clients["client"] = replace(beat, rows=100 * second, wait_s=second / 2, active_s=float(second))
            fleet.pass_time(1)
        wanted = fleet.state.snapshot(fleet.now_s).wanted
        assert (wanted.num_workers, wanted.reason) == (3, "trainers wait 50% of the time, limited by decoding")

    def test_events_of_strangers_change_nothing(self) -> None:
        fleet = running("a")
        stranger = running("b")
        assert fleet.tell(stranger.workers["b"]) == []
        assert not fleet.state.orders_for(WorkerId("b")).is_known
        fleet.tell(replace(fleet.clients["client"], client_id=stranger.clients["client"].client_id, rows=5))
        assert fleet.states() == {"a": "alive"}
