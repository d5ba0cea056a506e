"""The fleet's request rate for a prefix, and each worker's share of it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.storage.pacing import FALL, FORGET_S, PrefixUse
from stoker_service.dispatcher.budgets import MAX_PREFIXES, START_BEATS, Budgets, share_out
from stoker_service.dispatcher.events import Notice, WorkerBeat
from stoker_service.dispatcher.model import Settings, WorkerId
from support.crowd import Crowd, Store
from support.fleet import Fleet

PREFIX = "s3://bucket/train"
A, B, C = WorkerId("a"), WorkerId("b"), WorkerId("c")


def use(requests: float, throttled: float = 0, *, waited: float = 0, limit: float = 0.0) -> PrefixUse:
    return PrefixUse(PREFIX, requests, throttled, waited, 1.0, limit)


class Talk:
    """Budgets that hear of every worker once a second."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.budgets = Budgets(Settings("first"), self.now_s)
        self.news: list[str] = []

    def beat(self, uses: dict[WorkerId, PrefixUse | None], seconds: int = 1) -> dict[WorkerId, float]:
        """The shares after so many seconds of this."""
        for _ in range(seconds):
            for worker, told in uses.items():
                self.budgets.beat(worker, [told] if told else [], self.now_s)
            self.now_s += 1.0
            self.news += self.budgets.decide(list(uses), self.now_s)
        return {worker: self.budgets.limits_for(worker).get(PREFIX, math.inf) for worker in uses}


@pytest.fixture
def talk() -> Talk:
    talk = Talk()
    talk.beat({A: use(10), B: use(10)}, START_BEATS)
    return talk


class TestShares:
    @given(
        st.floats(0.1, 10_000),
        st.dictionaries(st.sampled_from([WorkerId(name) for name in "abcdefgh"]), st.floats(0, 10_000), min_size=1),
    )
    def test_the_sum_is_the_rate_and_nobody_who_wants_less_than_his_part_lacks(
        self, rate: float, demands: dict[WorkerId, float]
    ) -> None:
        """Law: shares add up to the limit, not to more; all that is not taken is there for whoever wants it next."""
        shares = share_out(rate, demands)
        assert shares.keys() == demands.keys()
        assert sum(shares.values()) == pytest.approx(rate)
        for worker, share in shares.items():
            assert share >= min(demands[worker], rate / len(demands)) * (1 - 1e-9)

    def test_who_wants_little_leaves_the_rest_to_the_others(self) -> None:
        assert share_out(100.0, {A: 10.0, B: 500.0, C: 500.0}) == {A: 10.0, B: 45.0, C: 45.0}

    def test_what_nobody_wants_is_dealt_out(self) -> None:
        assert share_out(100.0, {A: 10.0, B: 30.0}) == {A: 40.0, B: 60.0}

    def test_nobody_is_there(self) -> None:
        assert share_out(100.0, {}) == {}


class TestRates:
    def test_nothing_is_limited_before_the_first_refusal(self, talk: Talk) -> None:
        assert set(talk.beat({A: use(5000), B: use(5000)}, 100).values()) == {math.inf}

    def test_the_rate_falls_from_what_the_fleet_was_served(self, talk: Talk) -> None:
        shares = talk.beat({A: use(60, 30), B: use(40, 20)})
        assert sum(shares.values()) == pytest.approx(FALL * 50)
        assert "s3://bucket/train: the store asks for fewer requests; the workers keep to 40 a second" in talk.news

    def test_who_has_not_begun_may_begin(self, talk: Talk) -> None:
        shares = talk.beat({A: use(100, 50), B: None})
        assert 0 < shares[B] < shares[A]

    def test_a_worker_that_wants_more_gets_more(self, talk: Talk) -> None:
        talk.beat({A: use(100, 50), B: use(2)})
        shares = talk.beat({A: use(30, waited=30), B: use(2)}, 4)
        assert shares[A] > 8 * 2 > shares[B]
        shares = talk.beat({A: use(30, waited=30), B: use(20, waited=20)}, 6)
        assert shares[A] == pytest.approx(shares[B])

    def test_a_worker_that_is_gone_leaves_its_share(self, talk: Talk) -> None:
        shares = talk.beat({A: use(50, 20), B: use(50, 20)})
        after = talk.beat({A: use(50, waited=50)}, 5)
        assert after[A] > shares[A] + shares[B]

    def test_long_without_a_refusal_there_is_no_limit_again(self, talk: Talk) -> None:
        talk.beat({A: use(100, 50), B: use(2)})
        shares = talk.beat({A: use(1), B: use(1)}, round(FORGET_S) + 2)
        assert set(shares.values()) == {math.inf}
        assert "not limited any more" in talk.news[-1]

    def test_a_dispatcher_that_starts_anew_takes_over_what_workers_keep_to(self) -> None:
        talk = Talk()
        uses: dict[WorkerId, PrefixUse | None] = {A: use(30, waited=30, limit=30.0), B: use(10, limit=12.0)}
        shares = talk.beat(uses)
        assert set(shares.values()) == {math.inf}
        shares = talk.beat(uses)
        assert sum(shares.values()) == pytest.approx(42.0)

    def test_prefixes_are_bounded(self, talk: Talk) -> None:
        for number in range(2000):
            talk.budgets.beat(A, [replace(use(1), prefix=f"s3://bucket/{number}")], talk.now_s)
        assert len(talk.budgets._prefixes) == MAX_PREFIXES
        talk.beat({A: None, B: None}, 5)
        assert not talk.budgets._prefixes


class TestState:
    def test_beats_bring_limits_to_workers(self) -> None:
        fleet = Fleet()
        fleet.join("a")
        fleet.join("b")
        fleet.pass_time(3)
        assert not fleet.state.orders_for(A).limits
        fleet.workers["a"] = WorkerBeat(A, prefixes=(use(100, 50),))
        fleet.pass_time(1.25)
        limits = [fleet.state.orders_for(worker).limits for worker in (A, B)]
        assert sum(limit[PREFIX] for limit in limits) == pytest.approx(FALL * 50, rel=0.2)
        assert any(isinstance(action, Notice) and PREFIX in action.text for action in fleet.actions)

    def test_workers_of_any_number_settle_at_equal_parts(self) -> None:
        crowd = Crowd(Store(50.0, burst=50.0), [10, 10, 10], seed=5)
        crowd.run(60)
        assert max(crowd.told()) <= 1.3 * min(crowd.told())
