"""How fast workers are beside one another, told so coarsely that noise changes nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median

from stoker_service.dispatcher.model import WorkerId

STEP = 2.0**0.25
"""A speed is a power of this: neighbours differ by 19 %."""

TOLERANCE = 1.25
"""A measured speed must leave its kept one by more than this factor before it counts. Since the new one is at most half
a step away from what was measured, noise within TOLERANCE / sqrt(STEP), about ±14 %, moves nothing either way."""

LIMIT = 8.0
"""Nobody counts as more than this many times faster or slower than the median."""


def relative_speeds(rates: Mapping[WorkerId, float], kept: Mapping[WorkerId, float]) -> dict[WorkerId, float]:
    """Speeds beside the median of ``rates`` (rows per second of one decoding thread), on the grid of STEP.

    ``kept`` is the last answer. A worker that is in neither has the speed 1, the median's, and is left out.
    """
    if not rates:
        return dict(kept)
    middle = median(rates.values())
    measured = {worker: settled(rate / middle, kept.get(worker, 1.0)) for worker, rate in rates.items()}
    return {**kept, **measured}


def settled(measured: float, kept: float) -> float:
    """``kept`` while the measured speed is near it, else the grid's nearest to the measured one."""
    if kept / TOLERANCE <= measured <= kept * TOLERANCE:
        return kept
    within = min(max(measured, 1 / LIMIT), LIMIT)
    return STEP ** round(math.log(within, STEP))
