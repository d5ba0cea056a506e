"""Decides how many reads to keep in flight.

Hill climbing on measured throughput: double while that pays, then probe upwards in steps of a quarter. A step stays
that brings at least a quarter of what it would bring if latency alone were the limit; any other is taken back. When
the store throttles, a step on trial is taken back, or else the number is halved. There is no clock here: the caller
measures windows, of about a second or 20 reads each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

_FIRST_PATIENCE = 4
_MAX_PATIENCE = 32
_SMOOTHING = 0.3
_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Window:
    """What was read between two decisions.

    ``was_full``: the allowed number of reads was in flight most of the time. If it was not, nobody waited for
    storage, and the rate tells nothing about it.
    """

    num_bytes: int
    duration_s: float
    num_throttled: int
    was_full: bool

    @property
    def bytes_per_s(self) -> float:
        return self.num_bytes / self.duration_s if self.duration_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Concurrency:
    """The decision so far: keep at most ``in_flight`` reads going, within [``lowest``, ``highest``].

    ``kept_in_flight`` and ``kept_bytes_per_s`` are the best known level and its rate; ``in_flight`` is above it while
    a step is on trial. ``wait_windows`` is the time to the next trial, ``patience`` its start value.
    """

    in_flight: int = 8
    lowest: int = 1
    highest: int = 64
    is_doubling: bool = True
    kept_in_flight: int = 0
    kept_bytes_per_s: float = 0.0
    wait_windows: int = 0
    patience: int = _FIRST_PATIENCE


def observe(state: Concurrency, window: Window) -> Concurrency:
    """The next state after one window."""
    if window.num_throttled > 0:
        return _back_off(state)
    if not window.was_full:
        return state
    rate = window.bytes_per_s
    if state.kept_in_flight == 0:  # the first measurement since the start or since a throttle
        return _keep(state, rate)
    if state.in_flight > state.kept_in_flight:
        return _judge_trial(state, rate)
    smoothed = state.kept_bytes_per_s + _SMOOTHING * (rate - state.kept_bytes_per_s)
    state = replace(state, kept_bytes_per_s=smoothed)
    if state.wait_windows > 0:
        return replace(state, wait_windows=state.wait_windows - 1)
    return _try_more(state)


def _judge_trial(state: Concurrency, rate: float) -> Concurrency:
    ideal_gain = state.in_flight / state.kept_in_flight - 1
    if rate >= state.kept_bytes_per_s * (1 + _SHARE * ideal_gain):
        return _keep(state, rate)
    patience = state.patience if state.is_doubling else min(2 * state.patience, _MAX_PATIENCE)
    wait_windows = 0 if state.is_doubling else state.patience
    return replace(
        state, in_flight=state.kept_in_flight, is_doubling=False, wait_windows=wait_windows, patience=patience
    )


def _keep(state: Concurrency, rate: float) -> Concurrency:
    kept = replace(
        state, kept_in_flight=state.in_flight, kept_bytes_per_s=rate, patience=_FIRST_PATIENCE, wait_windows=0
    )
    return _try_more(kept)


def _try_more(state: Concurrency) -> Concurrency:
    step = state.in_flight if state.is_doubling else max(1, state.in_flight // 4)
    return replace(state, in_flight=min(state.highest, state.in_flight + step))


def _back_off(state: Concurrency) -> Concurrency:
    is_trial = state.in_flight > state.kept_in_flight > 0
    lower = state.kept_in_flight if is_trial else max(state.lowest, state.in_flight // 2)
    return replace(
        state,
        in_flight=lower,
        is_doubling=False,
        kept_in_flight=lower,
        kept_bytes_per_s=state.kept_bytes_per_s * lower / (state.kept_in_flight or lower),
        wait_windows=state.patience,
        patience=min(2 * state.patience, _MAX_PATIENCE),
    )
