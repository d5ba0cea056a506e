"""How many workers would keep the trainers from waiting.

A trainer that waits for a share s of its time would take its rows 1 / (1 - s) times as fast if it never waited. A
worker gives what its decoding threads can by measurement; while trainers wait, no more than it gives now, since then
something else than its threads may limit it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

HEADROOM = 1.2
"""Capacity over demand at which a trainer's wait stays below 1 %."""

STARVED_FRACTION = 0.02
"""A trainer that waits less than this is not waiting for workers."""

_MOST_STARVED = 0.9
_LEAST_RATE = 1e-6  # rows per second; what is less is nothing


@dataclass(frozen=True, slots=True)
class Demand:
    """One pipeline as measured of late.

    Args:
        num_lanes: at most so many workers can work on it.
        num_owners: workers that own lanes of it.
        rows_per_s: rows that all workers together made for it; 0 if not measured.
        capacity_rows_per_s: what a typical worker's threads could make; 0 if not measured.
        starved_fraction: share of the time that its trainers waited, 0 to 1.
    """

    num_lanes: int
    num_owners: int
    rows_per_s: float
    capacity_rows_per_s: float
    starved_fraction: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many workers are wanted, and why, for people."""

    num_workers: int
    reason: str


def num_wanted(demands: Sequence[Demand], num_workers: int) -> Wanted:
    """Workers wanted for all pipelines together, from ``num_workers`` that take lanes now.

    At most twice as many and one more than now: the next measurement decides on more.
    """
    if not demands:
        return Wanted(0, "no job is open")
    if num_workers == 0:
        return Wanted(1, "a job is open and no worker takes lanes")
    measured = [demand for demand in demands if min(demand.rows_per_s, demand.capacity_rows_per_s) > _LEAST_RATE]
    num_lanes = sum(demand.num_lanes for demand in demands)
    if not measured:
        return Wanted(min(num_workers, num_lanes), "nothing is measured yet")
    starved = max(measured, key=lambda demand: demand.starved_fraction)
    workers = sum(_workers(demand) for demand in measured)
    # A job that is opened and not measured yet keeps what it has.
    workers += sum(min(1.0, demand.num_owners) for demand in demands if demand not in measured)
    most = min(2 * num_workers + 1, num_lanes)
    return Wanted(max(1, min(math.ceil(workers - 1e-9), most)), _reason(starved, workers, num_lanes, num_workers))


def _workers(demand: Demand) -> float:
    starved = min(demand.starved_fraction, _MOST_STARVED)
    wish = demand.rows_per_s / (1 - starved) * HEADROOM
    each = demand.capacity_rows_per_s
    if starved > STARVED_FRACTION and demand.num_owners:
        each = min(each, demand.rows_per_s / demand.num_owners)
    return min(wish / each, float(demand.num_lanes))


def _reason(demand: Demand, workers: float, num_lanes: int, num_workers: int) -> str:
    if demand.starved_fraction <= STARVED_FRACTION:
        text = "trainers do not wait"
    else:
        possible = demand.capacity_rows_per_s * max(1, demand.num_owners)
        used = min(1.0, demand.rows_per_s / possible)
        limit = "decoding" if used > 0.6 else f"storage or network (decoding threads are busy {used:.0%} of the time)"
        text = f"trainers wait {demand.starved_fraction:.0%} of the time, limited by {limit}"
    if workers >= num_lanes > num_workers:
        text += f"; more than {num_lanes} workers would find no lane"
    return text
