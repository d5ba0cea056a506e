"""The number of reads in flight finds its place on simulated stores."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.storage.concurrency import Concurrency, Window, observe

MB = 1e6
SEEDS = range(5)


def simulate(
    rate: Callable[[int], float],
    *,
    seed: int,
    num_throttled: Callable[[int], int] = lambda _: 0,
    num_windows: int = 60,
    state: Concurrency | None = None,
) -> list[int]:
    """The levels chosen on a store of this rate (bytes/s as a function of reads in flight), measured within 5 %."""
    chance = random.Random(seed)
    state = state or Concurrency()
    levels = []
    for _ in range(num_windows):
        level = state.in_flight
        levels.append(level)
        num_bytes = int(rate(level) * chance.uniform(0.95, 1.05))
        state = observe(state, Window(num_bytes, 1.0, num_throttled(level), was_full=True))
    return levels


@pytest.mark.parametrize("seed", SEEDS)
def test_high_latency_leads_to_many_reads_within_ten_windows(seed: int) -> None:
    levels = simulate(lambda level: level * MB / 0.08, seed=seed)
    assert min(levels[10:]) >= 32


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("knee", [12, 20, 40])
def test_a_full_link_ends_the_climb(knee: int, seed: int) -> None:
    levels = simulate(lambda level: min(level, knee) * MB, seed=seed)
    mean_rate = sum(min(level, knee) for level in levels[20:]) / len(levels[20:])
    assert mean_rate >= 0.9 * knee
    assert sorted(levels[20:])[len(levels[20:]) // 2] <= 2 * knee


@pytest.mark.parametrize("seed", SEEDS)
def test_a_store_that_gets_slower_under_load_is_not_overloaded(seed: int) -> None:
    def rate(level: int) -> float:
        return (level if level <= 20 else 20 - 0.3 * (level - 20)) * MB

    levels = simulate(rate, seed=seed)
    assert sum(map(rate, levels)) / len(levels) >= 0.9 * 20 * MB


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("limit", [3, 10, 37])
def test_throttled_goodput_is_most_of_the_limit(limit: int, seed: int) -> None:
    """Pain 51: at least 80 % of what the store allows."""
    levels = simulate(
        lambda level: (level if level <= limit else 0.7 * limit) * MB,
        seed=seed,
        num_throttled=lambda level: max(0, level - limit),
        num_windows=100,
    )
    goodput = [level if level <= limit else 0.7 * limit for level in levels]
    assert sum(goodput) / len(goodput) >= 0.8 * limit
    assert sum(level > limit for level in levels[20:]) <= 10


def test_throttling_takes_a_trial_back_and_else_halves() -> None:
    throttled = Window(1, 1.0, 1, was_full=True)
    on_trial = Concurrency(in_flight=20, kept_in_flight=16, kept_bytes_per_s=1.0)
    assert observe(on_trial, throttled).in_flight == 16
    assert observe(observe(on_trial, throttled), throttled).in_flight == 8


def test_a_loader_that_does_not_wait_for_storage_changes_nothing() -> None:
    state = Concurrency()
    assert observe(state, Window(10, 1.0, 0, was_full=False)) == state


windows = st.builds(Window, st.integers(0, 1 << 34), st.floats(0, 100), st.integers(0, 2), st.booleans())


@given(st.integers(1, 10), st.integers(0, 60), st.lists(windows, max_size=60))
def test_the_bounds_hold_whatever_is_measured(lowest: int, more: int, observed: list[Window]) -> None:
    state = Concurrency(in_flight=lowest + more // 2, lowest=lowest, highest=lowest + more)
    for window in observed:
        state = observe(state, window)
        assert lowest <= state.in_flight <= lowest + more
