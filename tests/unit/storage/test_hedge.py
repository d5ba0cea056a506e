"""When a second request is sent."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.storage.hedge import HedgeBook, HedgePolicy, hedge_after_s
from stoker.storage.latency import Latencies, bucket_of

MIB = 1 << 20


def of(seconds: list[float]) -> Latencies:
    counts = [0] * (max(map(bucket_of, seconds)) + 1)
    for one in seconds:
        counts[bucket_of(one)] += 1
    return Latencies(tuple(counts))


def filled(latencies: list[float], num_bytes: int = MIB, policy: HedgePolicy | None = None) -> HedgeBook:
    book = HedgeBook(policy or HedgePolicy())
    for latency_s in latencies:
        book.answered(num_bytes, latency_s)
    return book


def test_a_read_is_late_when_nearly_all_of_its_size_are_answered() -> None:
    tail = [0.055] * 950 + [0.2] * 40 + [2.0] * 10
    assert hedge_after_s(of(tail), HedgePolicy(percentile=0.97)) == pytest.approx(0.2, rel=0.05)


def test_where_all_take_equally_long_none_is_late() -> None:
    after_s = hedge_after_s(of([0.055] * 1000), HedgePolicy())
    assert after_s == pytest.approx(1.5 * 0.055, rel=0.05)


@pytest.mark.parametrize("latencies", [[0.004] * 1000 + [2.0] * 300, [0.055] * 20])
def test_fast_stores_and_unknown_ones_are_not_hedged(latencies: list[float]) -> None:
    assert hedge_after_s(of(latencies), HedgePolicy()) is None


@given(st.lists(st.floats(0.001, 10.0), min_size=64, max_size=500))
def test_at_most_the_share_of_the_policy_was_later(latencies: list[float]) -> None:
    after_s = hedge_after_s(of(latencies), HedgePolicy())
    if after_s is not None:
        late = sum(latency_s > after_s * 1.05 for latency_s in latencies)
        assert late <= 0.03 * len(latencies)
        assert after_s >= 0.005


def test_sizes_are_compared_with_their_like() -> None:
    book = filled([0.5] * 200, 8 * MIB)
    assert book.after_s(1000, 0.0) is None
    assert book.after_s(2 * MIB + 1, 0.0) == pytest.approx(0.75, rel=0.05)


def test_nothing_is_hedged_for_a_while_after_a_throttle() -> None:
    book = filled([0.05] * 200)
    book.throttled(100.0)
    assert book.after_s(MIB, 100.0) is None
    assert book.after_s(MIB, 129.9) is None
    assert book.after_s(MIB, 130.0) is not None


def test_the_decision_follows_the_latest_reads() -> None:
    book = filled([0.05] * 2000 + [0.5] * 1024)
    assert book.after_s(MIB, 0.0) == pytest.approx(0.75, rel=0.05)
    book = filled([0.5] * 2000 + [0.001] * 1024)
    assert book.after_s(MIB, 0.0) is None


@pytest.mark.parametrize("seed", range(5))
def test_the_budget_holds_whatever_the_latencies(seed: int) -> None:
    chance = random.Random(seed)
    book, num_hedges = filled([0.05] * 64), 0
    for _ in range(20_000):
        latency_s = chance.choice([0.05, 5.0])  # half of all are late
        after_s = book.after_s(MIB, 0.0)
        if after_s is not None and latency_s > after_s and book.may_hedge(0.0):
            book.hedged()
            num_hedges += 1
        book.answered(MIB, latency_s)
    assert 0 <= num_hedges <= 0.035 * 20_000


def test_a_simulated_tail_is_cut_within_the_budget() -> None:
    """1 % of all take 2 s: with second requests the 99.5th percentile is near the ordinary latency."""
    chance = random.Random(3)
    book, took, num_hedges = HedgeBook(HedgePolicy()), list[float](), 0

    def draw() -> float:
        return 2.0 if chance.random() < 0.01 else chance.uniform(0.04, 0.07)

    for _ in range(10_000):
        first_s, after_s = draw(), book.after_s(MIB, 0.0)
        taken_s = first_s
        if after_s is not None and first_s > after_s and book.may_hedge(0.0):
            book.hedged()
            num_hedges += 1
            second_s = draw()
            book.answered(MIB, second_s)
            taken_s = min(first_s, after_s + second_s)
        book.answered(MIB, first_s)
        took.append(taken_s)
    took.sort()
    assert took[9_950] < 0.2
    assert num_hedges <= 300
