"""Decides when a second request is sent for a read that is slow (Dean and Barroso, The Tail at Scale, 2013).

A request that takes longer than nearly all of its size is likely to be stuck behind something that another one
would not meet. No clock and no threads here: the caller tells the time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stoker.storage.latency import Latencies, bucket_of

_GENERATION = 512  # reads; the window is one or two generations long
_DECIDED_ANEW = 32  # reads


@dataclass(frozen=True, slots=True)
class HedgePolicy:
    """``budget`` bounds the second requests, as a share of the first; ``quiet_s`` is how long none follows a throttle.

    None is sent where the median is below ``least_median_s``: a disk or a server near by has no tail that is worth a
    thread. Nor before a read has taken ``least_excess`` times the median: it is not late yet.
    """

    percentile: float = 0.97
    budget: float = 0.03
    least_median_s: float = 0.02
    least_excess: float = 1.5
    least_reads: int = 64
    quiet_s: float = 30.0


def hedge_after_s(latencies: Latencies, policy: HedgePolicy) -> float | None:
    """How long to wait for an answer before a second request is sent; None if none should be."""
    if latencies.total < policy.least_reads:
        return None
    median_s = latencies.percentile_s(0.5)
    if median_s < policy.least_median_s:
        return None
    return max(latencies.percentile_s(policy.percentile), policy.least_excess * median_s)


class HedgeBook:
    """What was seen lately, and what follows from it; for one thread at a time.

    Reads are compared with those of about their size: a class spans a factor of four.
    """

    def __init__(self, policy: HedgePolicy) -> None:
        self._policy = policy
        self._windows: dict[int, _Window] = {}
        self._throttled_s = -math.inf
        self._num_reads = 0.0
        self._num_hedges = 0.0

    def after_s(self, num_bytes: int, now_s: float) -> float | None:
        """How long to wait for a read that begins now, or None: it will not be hedged."""
        if not self.may_hedge(now_s):
            return None
        window = self._windows.get(_size_class(num_bytes))
        return window.after_s(self._policy) if window is not None else None

    def may_hedge(self, now_s: float) -> bool:
        """Whether the budget has room for a second request."""
        is_quiet = now_s - self._throttled_s < self._policy.quiet_s
        return not is_quiet and self._num_hedges + 1 <= self._policy.budget * self._num_reads

    def hedged(self) -> None:
        """A second request was sent."""
        self._num_hedges += 1

    def answered(self, num_bytes: int, latency_s: float) -> None:
        """A request was answered, be it the first or the second, in time or too late for anyone."""
        self._num_reads += 1
        if self._num_reads >= 2 * _GENERATION:
            self._num_reads /= 2
            self._num_hedges /= 2
        self._windows.setdefault(_size_class(num_bytes), _Window()).add(latency_s)

    def throttled(self, now_s: float) -> None:
        """The store asked for fewer requests."""
        self._throttled_s = now_s


class _Window:
    """The latest latencies of one size class."""

    def __init__(self) -> None:
        self._older = Latencies()
        self._counts: list[int] = []
        self._num_new = 0
        self._after_s: float | None = None
        self._is_decided = False

    def add(self, latency_s: float) -> None:
        bucket = bucket_of(latency_s)
        if bucket >= len(self._counts):
            self._counts.extend([0] * (bucket + 1 - len(self._counts)))
        self._counts[bucket] += 1
        self._num_new += 1
        if self._num_new % _DECIDED_ANEW == 0:
            self._is_decided = False
        if self._num_new == _GENERATION:
            self._older, self._counts, self._num_new = Latencies(tuple(self._counts)), [], 0

    def after_s(self, policy: HedgePolicy) -> float | None:
        if not self._is_decided:
            self._after_s = hedge_after_s(self._older + Latencies(tuple(self._counts)), policy)
            self._is_decided = True
        return self._after_s


def _size_class(num_bytes: int) -> int:
    """The largest of a class are 512 KiB, 2 MiB, 8 MiB: chunks and parts have such sizes at most."""
    return (num_bytes - 1).bit_length() // 2
