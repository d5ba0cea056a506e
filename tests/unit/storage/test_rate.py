"""Nothing is limited before the first refusal; after it the rate falls, rises again, and is forgotten."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.storage.pacing import (
    BURST_S,
    FALL,
    FORGET_S,
    LOWEST,
    Bucket,
    Pace,
    PrefixUse,
    at_rate,
    paced,
    promise,
    taken_back,
    wait_for,
)
from stoker.storage.prefixes import cut_to, depth_of, folder_of
from stoker.storage.rate import MAX_PREFIXES, MAX_REPORTED, TOLD_S, RateLimits

URL = "s3://bucket/train/0001.tar"
PREFIX = "s3://bucket/train"


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limits(clock: Clock) -> RateLimits:
    return RateLimits(clock)


def use(requests: int, throttled: int = 0, *, waited: int = 0, seconds: float = 1.0) -> PrefixUse:
    return PrefixUse(PREFIX, requests, throttled, waited, seconds)


def ask(limits: RateLimits, clock: Clock, num: int, *, throttled: int = 0, url: str = URL) -> None:
    """So many requests in a second, the last of them refused."""
    for number in range(num):
        limits.ask(url)
        clock.now_s += 1.01 / num
        limits.answered(url, is_throttled=number >= num - throttled)


class TestPace:
    def test_nothing_is_limited_before_the_first_refusal(self) -> None:
        assert paced(Pace(), use(100_000), 1.0, hold_s=1.0) == Pace()

    def test_it_falls_from_what_was_served(self) -> None:
        pace = paced(Pace(), use(200, 150), 1.0, hold_s=1.0)
        assert pace.rate == pytest.approx(FALL * 50)

    def test_refusals_of_requests_on_their_way_cause_no_second_fall(self) -> None:
        pace = paced(Pace(), use(200, 150), 1.0, hold_s=1.5)
        assert paced(pace, use(200, 150), 2.0, hold_s=1.5).rate == pace.rate
        assert paced(pace, use(200, 195), 3.0, hold_s=1.5).rate < pace.rate

    def test_one_refusal_in_hundreds_is_no_limit(self) -> None:
        assert paced(Pace(), use(1000, 2), 1.0, hold_s=1.0).rate == math.inf

    def test_it_rises_additively_while_it_holds_somebody_up(self) -> None:
        pace = paced(Pace(), use(200, 150), 1.0, hold_s=1.0)
        once = paced(pace, use(40, waited=40), 2.0, hold_s=1.0)
        twice = paced(once, use(42, waited=42), 3.0, hold_s=1.0)
        assert once.rate - pace.rate == pytest.approx(twice.rate - once.rate) == pytest.approx(pace.step)
        assert paced(pace, use(5), 2.0, hold_s=1.0).rate == pace.rate

    def test_long_without_a_refusal_there_is_no_limit_again(self) -> None:
        pace = paced(Pace(), use(200, 150), 1.0, hold_s=1.0)
        assert paced(pace, use(10), 1.0 + FORGET_S, hold_s=1.0) == pace
        assert paced(pace, use(10), 1.1 + FORGET_S, hold_s=1.0) == Pace()

    @given(st.lists(st.tuples(st.integers(0, 500), st.floats(0, 1), st.booleans()), max_size=40))
    def test_it_is_never_so_low_that_nobody_would_learn_of_a_change(
        self, windows: list[tuple[int, float, bool]]
    ) -> None:
        pace = Pace()
        for second, (requests, part, is_held_up) in enumerate(windows):
            waited = requests if is_held_up else 0
            pace = paced(pace, use(requests, int(part * requests), waited=waited), float(second), hold_s=1.5)
            assert pace.rate >= LOWEST
            assert pace.rate == math.inf or pace.step >= LOWEST

    @given(st.floats(10, 5000), st.floats(1, 10_000))
    def test_it_converges_to_what_is_served(self, limit: float, first: float) -> None:
        """One eager process before a store that serves ``limit`` a second."""
        pace, served = Pace(rate=first, step=max(1.0, first / 20), refused_s=0.0), []
        for second in range(1, 400):
            sent = min(pace.rate, 4 * limit)
            answered = min(sent, limit)
            seen = PrefixUse(PREFIX, sent, sent - answered, sent, 1.0)
            pace = paced(pace, seen, float(second), hold_s=1.5) if pace.rate < math.inf else pace
            served.append(answered)
        assert sum(served[-100:]) / 100 >= 0.8 * limit


class TestBucket:
    @given(
        st.floats(0.1, 1000),
        st.lists(st.floats(0, 3), min_size=1, max_size=60),
    )
    def test_never_more_tokens_than_rate_times_time_and_a_burst(self, rate: float, pauses: list[float]) -> None:
        """Law: of requests sent as promised, any interval holds at most rate × time + burst."""
        bucket, now_s, sent = Bucket(rate, 0.0), 0.0, []
        for pause_s in pauses:
            now_s += pause_s
            bucket = promise(bucket, now_s)
            sent.append(now_s + wait_for(bucket, bucket.num_promised, now_s))
        assert sent == sorted(sent)
        burst = max(1.0, rate * BURST_S)
        for first in range(len(sent)):
            for last in range(first, len(sent)):
                assert last - first + 1 <= rate * (sent[last] - sent[first]) + burst + 1e-3

    def test_promises_follow_the_rate(self) -> None:
        bucket = Bucket(10.0, 0.0)
        for _ in range(11):
            bucket = promise(bucket, 0.0)
        assert wait_for(bucket, 1, 0.0) == 0.0
        assert wait_for(bucket, 11, 0.0) == pytest.approx(1.0)
        slower = at_rate(bucket, 1.0, 0.5)
        assert wait_for(slower, 6, 0.5) == 0.0
        assert wait_for(slower, 11, 0.5) == pytest.approx(5.0)

    def test_those_behind_one_who_leaves_move_up(self) -> None:
        bucket = Bucket(1.0, 0.0)
        for _ in range(3):
            bucket = promise(bucket, 0.0)
        assert wait_for(taken_back(bucket), 3, 0.0) == pytest.approx(1.0)


class TestRateLimits:
    def test_without_a_refusal_nobody_waits(self, limits: RateLimits, clock: Clock) -> None:
        ask(limits, clock, 5000)
        assert limits.limit_of(URL) == math.inf
        assert limits.wait_for(limits.ask(URL)) == 0.0

    def test_after_a_refusal_requests_are_spaced(self, limits: RateLimits, clock: Clock) -> None:
        ask(limits, clock, 100, throttled=50)
        assert limits.limit_of(URL) == pytest.approx(FALL * 50, rel=0.05)
        turns = [limits.ask(URL) for _ in range(41)]
        assert limits.wait_for(turns[-1]) == pytest.approx(1.0, rel=0.1)
        limits.give_up(turns[3])
        assert limits.wait_for(turns[-1]) == pytest.approx(1.0 - 1 / 40, rel=0.1)

    def test_prefixes_are_limited_apart(self, limits: RateLimits, clock: Clock) -> None:
        ask(limits, clock, 100, throttled=50)
        assert limits.limit_of("s3://bucket/other/x") == math.inf
        assert limits.limit_of("s3://bucket/train/y") < math.inf

    def test_what_the_dispatcher_tells_holds(self, limits: RateLimits, clock: Clock) -> None:
        limits.set({PREFIX: 5.0})
        assert limits.limit_of(URL) == 5.0
        ask(limits, clock, 5, throttled=4)
        assert limits.limit_of(URL) == 5.0
        limits.set({})
        assert limits.limit_of(URL) == pytest.approx(5.0, rel=0.1)

    def test_a_dispatcher_that_is_gone_limits_nobody_for_ever(self, limits: RateLimits, clock: Clock) -> None:
        limits.set({PREFIX: 5.0})
        clock.now_s += TOLD_S + 0.1
        assert limits.limit_of(URL) == math.inf

    def test_who_waits_for_a_limit_that_ended_does_not_wait_for_the_next(
        self, limits: RateLimits, clock: Clock
    ) -> None:
        limits.set({PREFIX: 5.0})
        turns = [limits.ask(URL) for _ in range(50)]
        limits.set({})
        assert limits.wait_for(turns[-1]) == 0.0
        limits.set({PREFIX: 5.0})
        assert limits.wait_for(turns[-1]) == 0.0
        assert limits.wait_for(limits.ask(URL)) == 0.0
        assert limits.wait_for(limits.ask(URL)) == pytest.approx(0.2)

    def test_numbers_that_are_no_rates_are_not_taken(self, limits: RateLimits) -> None:
        limits.set({PREFIX: 0.0, "s3://b": math.nan, "s3://c": -1.0, "s3://d": math.inf})
        assert [limits.limit_of(url) for url in (URL, "s3://b/x", "s3://c/x", "s3://d/x")] == [math.inf] * 4

    def test_a_long_pause_is_no_slow_store(self, limits: RateLimits, clock: Clock) -> None:
        ask(limits, clock, 10)
        clock.now_s += 1000.0
        ask(limits, clock, 101, throttled=51)
        assert limits.limit_of(URL) == pytest.approx(FALL * 50, rel=0.1)

    def test_a_report_tells_what_came_since_the_last(self, limits: RateLimits, clock: Clock) -> None:
        ask(limits, clock, 10, throttled=1)
        (told,) = limits.report()
        assert (told.prefix, told.requests, told.throttled) == (PREFIX, 10, 1)
        assert told.seconds == pytest.approx(1.01)
        assert told.limit == pytest.approx(limits.limit_of(URL))
        clock.now_s += 2.0
        (told,) = limits.report()
        assert (told.requests, told.throttled, told.seconds) == (0, 0, 2.0)

    def test_prefixes_are_bounded_and_wider_where_there_are_many(self, limits: RateLimits, clock: Clock) -> None:
        for number in range(1000):
            ask(limits, clock, 1, url=f"s3://bucket/train/n{number:08}/x.jpg")
        assert len(limits._prefixes) <= MAX_PREFIXES
        assert {use.prefix for use in limits.report()} >= {PREFIX}
        for number in range(1000):
            ask(limits, clock, 1, url=f"s3://bucket-{number}/x.jpg")
        assert len(limits._prefixes) <= MAX_PREFIXES
        assert len(limits.report()) == MAX_REPORTED

    def test_limited_prefixes_are_told_first(self, limits: RateLimits, clock: Clock) -> None:
        ask(limits, clock, 4, throttled=1)
        for number in range(40):
            ask(limits, clock, 50, url=f"s3://bucket/{number}/x")
        assert limits.report()[0].prefix == PREFIX


@pytest.mark.parametrize(
    "url, folder",
    [
        ("s3://bucket/a/b/x.tar", "s3://bucket/a/b"),
        ("s3://bucket/x.tar", "s3://bucket"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/a/", "s3://bucket/a"),
        ("https://user:SECRET@host:1/a/x.tar?sig=SECRET/SECRET", "https://host:1/a"),
        ("https://host?SECRET", "https://host"),
        ("https://host/x#SECRET/y", "https://host"),
    ],
)
def test_the_folder_of_a_url_shows_no_secret(url: str, folder: str) -> None:
    assert folder_of(url) == folder


def test_folders_are_cut() -> None:
    assert cut_to("s3://bucket/a/b", 1) == "s3://bucket/a"
    assert cut_to("s3://bucket/a/b", 0) == "s3://bucket"
    assert cut_to("s3://bucket", 5) == "s3://bucket"
    assert [depth_of(folder) for folder in ("s3://bucket", "s3://bucket/a", "s3://bucket/a/b")] == [0, 1, 2]
