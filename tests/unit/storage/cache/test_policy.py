"""Belady's rule with bypass, and the clocks of jobs."""

from __future__ import annotations

import math

import pytest

from stoker.storage.cache.policy import GRACE, SILENT_S, Candidate, Clock, advanced, choose, seconds_until
from stoker.storage.use import NEVER


def candidates(*untils: float) -> list[Candidate]:
    return [Candidate(bytes([i]), 10, until_s) for i, until_s in enumerate(untils)]


def chosen(*arguments: object) -> list[float] | None:
    found = choose(*arguments)  # type: ignore[arg-type]
    return None if found is None else [each.until_s for each in found]


def test_where_there_is_room_nothing_goes() -> None:
    assert chosen(0, 0, math.inf, candidates(5, 4)) == []


def test_the_farthest_go_and_only_as_many_as_needed() -> None:
    assert chosen(15, 0, 1.0, candidates(9, 8, 7)) == [9, 8]
    assert chosen(1, 2, 1.0, candidates(9, 8, 7)) == [9, 8]


def test_what_would_be_the_farthest_is_not_admitted() -> None:
    assert chosen(10, 0, 9.0, candidates(9, 8)) is None
    assert chosen(20, 0, 8.5, candidates(9, 8)) is None
    assert chosen(1, 0, 0.0, candidates()) is None


def test_an_unknown_use_is_the_farthest_of_all() -> None:
    assert chosen(10, 0, math.inf, candidates(math.inf, 8)) is None
    assert chosen(10, 0, 1e9, candidates(math.inf, 8)) == [math.inf]


def clock_at(now: float, pace_s: float = 100.0, at_s: float = 0.0) -> Clock:
    return Clock(now, at_s, at_s, pace_s, now, at_s)


def test_a_use_is_as_far_as_the_jobs_pace_says() -> None:
    assert seconds_until(clock_at(3.0), 3.5, 0.0) == pytest.approx(50.0)


def test_uses_that_never_come_that_are_over_or_of_a_silent_job_are_unknown() -> None:
    assert seconds_until(clock_at(3.0), NEVER, 0.0) == math.inf
    assert seconds_until(clock_at(3.0), 3.0 - 2 * GRACE, 0.0) == math.inf
    assert seconds_until(clock_at(3.0), 3.0 - GRACE / 2, 0.0) < 0
    assert seconds_until(clock_at(3.0), 3.5, SILENT_S + 1) == math.inf


def test_a_clock_measures_seconds_an_epoch() -> None:
    clock = advanced(None, 0.0, 0.0)
    for step in range(1, 101):
        clock = advanced(clock, step / 100, step * 2.0)
    assert clock.pace_s == pytest.approx(200.0)
    for step in range(101, 301):
        clock = advanced(clock, step / 100, 200 + (step - 100) * 6.0)
    assert clock.pace_s == pytest.approx(600.0, rel=0.01)


def test_readers_that_lag_do_not_turn_a_clock_back_but_a_job_that_begins_again_does() -> None:
    clock = advanced(clock_at(3.0), 2.8, 1.0)
    assert (clock.now, clock.seen_s) == (3.0, 1.0)
    clock = advanced(clock, 2.0, 100.0)
    assert (clock.now, clock.pace_s) == (2.0, 100.0)
