"""Latencies in fixed buckets, whose counts of several processes can be added.

A bucket is 1/8 of an octave wide, so a percentile is right to within 5 %.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

_PER_OCTAVE = 8
_SHORTEST_S = 2.0**-20  # about a microsecond
_NUM_BUCKETS = 32 * _PER_OCTAVE  # up to 2**12 s, longer than any deadline


def bucket_of(seconds: float) -> int:
    """The bucket that a latency falls into."""
    if seconds <= _SHORTEST_S:
        return 0
    return min(_NUM_BUCKETS - 1, int(math.log2(seconds / _SHORTEST_S) * _PER_OCTAVE))


def middle_of(bucket: int) -> float:
    """The latency that stands for a bucket: its geometric middle, in seconds."""
    return float(_SHORTEST_S * 2.0 ** ((bucket + 0.5) / _PER_OCTAVE))


@dataclass(frozen=True, slots=True)
class Latencies:
    """How many latencies fell into each bucket, the empty ones at the end left out."""

    counts: tuple[int, ...] = ()

    @property
    def total(self) -> int:
        return sum(self.counts)

    def percentile_s(self, share: float) -> float:
        """The latency that a ``share`` in (0, 1] of all did not exceed; 0 if there are none."""
        wanted = math.ceil(share * self.total)
        if wanted == 0:
            return 0.0
        reached = itertools.accumulate(self.counts)
        return middle_of(next(bucket for bucket, count in enumerate(reached) if count >= wanted))

    def __add__(self, other: Latencies) -> Latencies:
        pairs = itertools.zip_longest(self.counts, other.counts, fillvalue=0)
        return Latencies(tuple(mine + theirs for mine, theirs in pairs))
