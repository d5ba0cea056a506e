"""The requests that a store lets through for each folder."""

from __future__ import annotations

import pytest

from stoker.storage.chaos import limits
from stoker.storage.chaos.limits import Limits
from stoker.storage.chaos.profile import parse


def num_let_through(profile_text: str, times_s: list[float], name: str = "s3://b/a/x") -> int:
    kept, profile = Limits(), parse(profile_text)
    return sum(kept.lets_through(profile, name, time_s) for time_s in times_s)


def test_without_a_rate_all_pass() -> None:
    assert num_let_through("none", [0.0] * 100) == 100


def test_at_once_pass_as_many_as_the_burst() -> None:
    assert num_let_through("rate=10", [0.0] * 100) == 10
    assert num_let_through("rate=10,burst=3", [0.0] * 100) == 3
    assert num_let_through("rate=0.5", [0.0] * 100) == 1


def test_over_time_the_rate_passes() -> None:
    ten_seconds = [number / 100 for number in range(1000)]
    assert num_let_through("rate=10,burst=5", ten_seconds) == pytest.approx(104, abs=1)


def test_time_off_fills_no_more_than_the_burst() -> None:
    assert num_let_through("rate=10,burst=3", [0.0] * 5 + [100.0] * 5) == 6


def test_folders_have_their_own_limits() -> None:
    kept, profile = Limits(), parse("rate=1")
    passed = [kept.lets_through(profile, name, 0.0) for name in ("b/x/1", "b/x/2", "b/y/1", "b/1")]
    assert passed == [True, False, True, True]


def test_only_so_many_folders_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_FOLDERS", 2)
    kept, profile = Limits(), parse("rate=1")
    passed = [kept.lets_through(profile, f"{folder}/x", 0.0) for folder in ("a", "b", "a", "c", "a")]
    assert passed == [True, True, False, True, True]
