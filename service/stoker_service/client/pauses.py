"""How long to wait before something is tried again."""

from __future__ import annotations

import random

FIRST_S = 0.02
LAST_S = 0.5


def pause_s(attempt: int, chance: random.Random) -> float:
    """Seconds before the attempt that follows ``attempt`` failed ones: 20 ms, doubling to half a second, with jitter.

    ``chance`` spreads those who failed at the same moment.
    """
    longest = min(LAST_S, FIRST_S * 2.0 ** min(attempt, 10))
    return longest * (0.5 + 0.5 * chance.random())
