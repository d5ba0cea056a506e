"""Profiles say what goes wrong; the fates drawn from them keep to it."""

from __future__ import annotations

from collections import Counter

import pytest

from stoker.errors import SpecError
from stoker.storage.chaos.profile import PROFILES, Fate, Fault, Profile, draw, parse, transfer_s

NUM_REQUESTS = 4000


@pytest.mark.parametrize("name", PROFILES)
def test_a_name_alone_is_that_profile(name: str) -> None:
    assert parse(name) == PROFILES[name]


def test_a_text_changes_a_profile_or_none() -> None:
    assert parse("gcs, seed=3,latency_ms=80") == Profile(3, 80.0, 2000.0, throttle=429, page=1000)
    assert parse("rate=50,burst=5") == Profile(rate=50.0, burst=5.0)


@pytest.mark.parametrize(
    "text, message",
    [
        ("gsc", "no profile 'gsc'; did you mean 'gcs'"),
        ("", "no profile ''; known are none, gcs"),
        ("gcs,latency=5", "no setting 'latency'; did you mean 'latency_ms'"),
        ("gcs,", "no setting ''; known are seed, latency_ms"),
        ("gcs,seed=1.5", "seed should be a whole number, such as seed=3, found '1.5'"),
        ("gcs,rate", "rate should be a number, such as rate=3, found nothing"),
        ("cut=1.5", "cut is a share from 0 to 1, found 1.5"),
        ("flip=nan", "flip is a share from 0 to 1, found nan"),
        ("cut=0.6,fail=0.6", "their sum is above 1"),
        ("latency_ms=-1", "latency_ms should be 0 or more, found -1"),
        ("latency_ms=inf", "latency_ms should be 0 or more, found inf"),
        ("throttle=500", "throttle is the status 429 or 503, found 500"),
        ("gcs,latency_ms=3000", "tail_ms=2000 is the slowest answer, below latency_ms=3000"),
    ],
)
def test_a_wrong_text_says_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse(text)


def test_fates_depend_on_seed_and_number_alone() -> None:
    profile = parse("flaky,seed=7")
    fates = [draw(profile, number) for number in range(200)]
    assert [draw(profile, number) for number in reversed(range(200))] == fates[::-1]
    assert [draw(parse("flaky,seed=8"), number) for number in range(200)] != fates


def test_faults_come_as_often_as_the_profile_says() -> None:
    profile = parse("cut=0.1,stall=0.05,empty=0.1,flip=0.2,fail=0.15")
    found = Counter(draw(profile, number).fault for number in range(NUM_REQUESTS))
    for fault in set(Fault) - {Fault.NONE}:
        assert found[fault] / NUM_REQUESTS == pytest.approx(getattr(profile, fault.value), abs=0.02)


@pytest.mark.parametrize("name", ["gcs", "s3-far"])
def test_latencies_have_their_median_and_a_heavy_tail(name: str) -> None:
    profile = PROFILES[name]
    latencies = sorted(draw(profile, number).latency_s * 1e3 for number in range(NUM_REQUESTS))
    assert latencies[NUM_REQUESTS // 2] == pytest.approx(profile.latency_ms, rel=0.05)
    assert latencies[int(0.98 * NUM_REQUESTS)] < 2 * profile.latency_ms
    assert 0.3 * profile.tail_ms < latencies[-1] <= profile.tail_ms


def test_without_latency_nothing_waits() -> None:
    assert {draw(Profile(), number) for number in range(50)} == {Fate(0.0)}


def test_without_a_tail_the_body_goes_on() -> None:
    latencies = [draw(parse("latency_ms=10"), number).latency_s for number in range(NUM_REQUESTS)]
    assert max(latencies) < 0.04


def test_the_byte_lies_in_the_body() -> None:
    for number in range(50):
        fate = draw(parse("cut=1"), number)
        assert 0 <= fate.byte(Profile(), 3) < 3
        assert fate.byte(Profile(), 0) == 0
        assert fate.byte(Profile(at=2), 10) == 2
        assert fate.byte(Profile(at=20), 10) == 9
        assert fate.bit() in {1 << bit for bit in range(8)}


def test_a_body_takes_its_time_at_the_bandwidth() -> None:
    assert transfer_s(parse("mb_per_s=10"), 5_000_000) == 0.5
    assert transfer_s(Profile(), 5_000_000) == 0.0
