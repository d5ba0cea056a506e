"""Deals the lanes of one pipeline out to workers.

Each worker gets a quota of lanes by its weight; whoever has lanes already keeps as many as the quota lets him; a lane
that must move goes by weighted rendezvous hashing (Thaler and Ravishankar 1998; the weighted form: Schindelhauer and
Schomaker 2005) to one that is below its quota. Nothing else decides, so equal input gives equal output in every
process, whatever the order of the mappings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from stoker_service.dispatcher.model import PipelineId, WorkerId

_NOT_BUSY: Mapping[WorkerId, int] = MappingProxyType({})
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def assign(
    pipeline: PipelineId,
    num_lanes: int,
    weights: Mapping[WorkerId, float],
    before: Mapping[int, WorkerId],
    busy: Mapping[WorkerId, int] = _NOT_BUSY,
) -> dict[int, WorkerId]:
    """Give each lane in ``range(num_lanes)`` one owner among ``weights``; nobody is there: an empty answer.

    Weights are positive and finite. Each worker gets its exact share ``num_lanes × weight / sum``, rounded down, or up
    where most is missing. ``busy`` counts lanes of other pipelines: they belong to the fair part that is compared with.
    Who owns more lanes in ``before`` than its share rounded down is favoured by half a lane: rounding moves no lane to
    gain less. So with equal weights no way of rounding would move fewer.
    """
    if not weights:
        return {}
    held: dict[WorkerId, list[int]] = {worker: [] for worker in sorted(weights)}
    for lane in range(num_lanes):
        owner = before.get(lane)
        if owner in held:
            held[owner].append(lane)
    quotas = _quotas(pipeline, num_lanes, weights, held, busy)
    owners: dict[int, WorkerId] = {}
    for worker, lanes in held.items():
        for lane in _nearest(pipeline, worker, lanes, quotas[worker]):
            owners[lane] = worker
            quotas[worker] -= 1
    _place(pipeline, [lane for lane in range(num_lanes) if lane not in owners], quotas, weights, owners)
    return {lane: owners[lane] for lane in range(num_lanes)}


@dataclass(frozen=True, slots=True)
class _Share:
    worker: WorkerId
    floor: int
    remainder: int


def _quotas(
    pipeline: PipelineId,
    num_lanes: int,
    weights: Mapping[WorkerId, float],
    held: Mapping[WorkerId, list[int]],
    busy: Mapping[WorkerId, int],
) -> dict[WorkerId, int]:
    """Lanes per worker, in exact arithmetic: floors first, then one more where most is missing."""
    exact = _as_integers({worker: weights[worker] for worker in held})
    total = sum(exact.values())
    num_everywhere = num_lanes + sum(busy.get(worker, 0) for worker in held)
    shares = [_Share(worker, *divmod(num_lanes * weight, total)) for worker, weight in exact.items()]

    def claim(share: _Share) -> tuple[int, int]:
        """How many lanes, times ``total``, are missing to a fair part of everything; ties by hashing."""
        worker = share.worker
        missing = num_everywhere * exact[worker] - (share.floor + busy.get(worker, 0)) * total
        if len(held[worker]) > share.floor:
            missing += total // 2
        return -missing, _key(pipeline, worker)

    quotas = {share.worker: share.floor for share in shares}
    num_left = num_lanes - sum(quotas.values())
    for share in sorted((share for share in shares if share.remainder), key=claim)[:num_left]:
        quotas[share.worker] += 1
    return quotas


def _as_integers(weights: Mapping[WorkerId, float]) -> dict[WorkerId, int]:
    """The same ratios without rounding: a float is an integer over a power of two."""
    ratios = {worker: float(weight).as_integer_ratio() for worker, weight in weights.items()}
    scale = max(denominator for _, denominator in ratios.values())
    return {worker: number * (scale // denominator) for worker, (number, denominator) in ratios.items()}


def _nearest(pipeline: PipelineId, worker: WorkerId, lanes: list[int], quota: int) -> list[int]:
    """The lanes to keep: those for which hashing favours this worker most."""
    if len(lanes) <= quota:
        return lanes
    key = _key(pipeline, worker)
    return sorted(lanes, key=lambda lane: (-_mix(key ^ _lane_key(lane)), lane))[:quota]


def _place(
    pipeline: PipelineId,
    lanes: list[int],
    quotas: Mapping[WorkerId, int],
    weights: Mapping[WorkerId, float],
    owners: dict[int, WorkerId],
) -> None:
    """Give each of ``lanes`` to a worker whose quota is not used up; ``quotas`` sum up to their number."""
    open_quotas = {worker: quota for worker, quota in quotas.items() if quota > 0}
    workers = list(open_quotas)
    left = np.array([open_quotas[worker] for worker in workers], np.int64)
    keys = np.array([_key(pipeline, worker) for worker in workers], np.uint64)
    rates = np.array([weights[worker] for worker in workers], np.float64)
    for lane in lanes:
        # The least of exponential draws with these rates is each one's with a probability as its rate.
        draws = -np.log(_fractions(keys ^ np.uint64(_lane_key(lane)))) / rates
        draws[left == 0] = np.inf
        index = int(draws.argmin())
        left[index] -= 1
        owners[lane] = workers[index]


def _key(pipeline: PipelineId, worker: WorkerId) -> int:
    return int.from_bytes(blake2b(f"{pipeline}\0{worker}".encode(), digest_size=8).digest(), "little")


def _lane_key(lane: int) -> int:
    return ((lane + 1) * _GOLDEN) & _MASK


def _mix(value: int) -> int:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _fractions(values: NDArray[np.uint64]) -> NDArray[np.float64]:
    """The same finaliser on many, as numbers in the open interval (0, 1)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    values = values ^ (values >> np.uint64(31))
    return ((values >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
