"""How far ahead: enough for the latency, never more than the cache has room for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.engine.ahead import MAX_IN_FLIGHT, how_far, most_bytes

MB = 1 << 20


@given(
    demand=st.floats(0, 1e10),
    p50=st.floats(0, 10),
    p99=st.floats(0, 60),
    chunk=st.floats(1, 1e8),
    budget=st.integers(0, 1 << 40),
)
def test_bounds(demand: float, p50: float, p99: float, chunk: float, budget: int) -> None:
    found = how_far(
        demand_bytes_per_s=demand, latency_p50_s=p50, latency_p99_s=p99, chunk_bytes=chunk, most_bytes=budget
    )
    assert 0 <= found.num_bytes <= budget
    assert 1 <= found.in_flight <= MAX_IN_FLIGHT


def test_the_lead_outlasts_the_slowest_percent() -> None:
    found = how_far(
        demand_bytes_per_s=100 * MB, latency_p50_s=0.055, latency_p99_s=2.0, chunk_bytes=MB, most_bytes=10_000 * MB
    )
    assert found.num_bytes == 400 * MB  # 4 s at 100 MB/s
    assert found.in_flight == 11  # twice the 5.5 that are under way at 55 ms


def test_a_fast_store_needs_one_at_a_time() -> None:
    found = how_far(
        demand_bytes_per_s=100 * MB, latency_p50_s=0.0003, latency_p99_s=0.001, chunk_bytes=MB, most_bytes=1 << 40
    )
    assert found.in_flight == 1


def test_a_cache_that_holds_all_gives_what_is_left_and_another_two_points() -> None:
    assert most_bytes(100 * MB, 30 * MB) == 70 * MB
    assert most_bytes(100 * MB, 1000 * MB) == 2 * MB
