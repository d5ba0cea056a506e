"""A histogram tells percentiles to within its buckets, and adds up."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.storage.latency import Latencies, bucket_of, middle_of

SECONDS = st.floats(1e-5, 1000.0)


def of(seconds: list[float]) -> Latencies:
    counts = [0] * (max(map(bucket_of, seconds), default=-1) + 1)
    for one in seconds:
        counts[bucket_of(one)] += 1
    return Latencies(tuple(counts))


@given(SECONDS)
def test_the_middle_of_a_bucket_is_near_what_fell_into_it(seconds: float) -> None:
    assert middle_of(bucket_of(seconds)) == pytest.approx(seconds, rel=0.05)


@given(SECONDS, SECONDS)
def test_buckets_are_in_the_order_of_time(one: float, other: float) -> None:
    assert (bucket_of(one) <= bucket_of(other)) or one > other


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 1e-9, 1e9])
def test_odd_times_have_a_bucket(seconds: float) -> None:
    assert bucket_of(seconds) >= 0


@given(st.lists(SECONDS, min_size=1), st.floats(0.001, 1.0))
def test_a_percentile_is_that_of_the_sorted_times(seconds: list[float], share: float) -> None:
    expected = sorted(seconds)[math.ceil(share * len(seconds)) - 1]
    assert of(seconds).percentile_s(share) == pytest.approx(expected, rel=0.05)


@given(st.lists(SECONDS), st.lists(SECONDS))
def test_a_sum_is_the_histogram_of_both(one: list[float], other: list[float]) -> None:
    assert of(one) + of(other) == of(one + other)


def test_nothing_has_no_percentile() -> None:
    assert (Latencies().percentile_s(0.99), Latencies().total) == (0.0, 0)
