"""How far ahead of the readers chunks are brought into the cache, and how many at once; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

MAX_IN_FLIGHT: Final = 32
_MIN_AHEAD_S: Final = 2.0
_SLACK: Final = 2.0


@dataclass(frozen=True, slots=True)
class Ahead:
    """Keep chunks of up to ``num_bytes`` behind what was read last, bringing up to ``in_flight`` at once."""

    num_bytes: int
    in_flight: int


def most_bytes(cache_bytes: int, data_bytes: int) -> int:
    """The longest lead that a cache has room for.

    What is brought early takes the place of what is used later, so the lead costs as much of the hit rate as it takes
    of a cache that does not hold all data: a fiftieth, two points, at most.
    """
    return max(cache_bytes // 50, cache_bytes - data_bytes)


def how_far(
    *, demand_bytes_per_s: float, latency_p50_s: float, latency_p99_s: float, chunk_bytes: float, most_bytes: int
) -> Ahead:
    """The lead that hides the store's latency at the rate the job reads.

    By Little's law ``demand * latency`` bytes are in flight; twice that, so that a rate that is held down by storage
    can grow. The lead outlasts twice the slowest percent, and two seconds at least.
    """
    ahead_s = max(_SLACK * latency_p99_s, _MIN_AHEAD_S)
    num_bytes = max(demand_bytes_per_s * ahead_s, 2 * chunk_bytes)
    in_flight = math.ceil(_SLACK * demand_bytes_per_s * latency_p50_s / max(chunk_bytes, 1.0))
    return Ahead(int(min(num_bytes, most_bytes)), min(max(in_flight, 1), MAX_IN_FLIGHT))
