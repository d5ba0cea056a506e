"""Which records go into which shard; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stoker.convert.records import Survey
from stoker.randomness import key64, keyed_permutation

ROW_BYTES = 1024
"""What a record costs beside its bytes: headers and padding of a tar, about."""

_SHUFFLE_STREAM = -3


@dataclass(frozen=True, slots=True)
class Plan:
    """All records in the order of the shards; shard ``i`` has ``order[stops[i]:stops[i + 1]]``."""

    order: NDArray[np.int64]
    stops: NDArray[np.int64]
    first_rows: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @property
    def num_shards(self) -> int:
        return len(self.stops) - 1

    @property
    def num_rows(self) -> int:
        return len(self.order)

    @property
    def num_bytes(self) -> int:
        return int(self.sizes.sum())

    def rows(self, shard: int) -> NDArray[np.int64]:
        """The records of a shard by their number in the source, in the shard's order."""
        return self.order[self.stops[shard] : self.stops[shard + 1]]

    def reads(self, shard: int) -> Iterator[Read]:
        """What to read for a shard: each part once, its rows ascending."""
        rows = self.rows(shard)
        places = np.argsort(rows, kind="stable")
        ascending = rows[places]
        parts = np.searchsorted(self.first_rows, ascending, side="right") - 1
        cuts = np.flatnonzero(np.diff(parts)) + 1
        for numbers, where in zip(np.split(ascending, cuts), np.split(places, cuts), strict=True):
            if len(numbers):
                part = int(np.searchsorted(self.first_rows, numbers[0], side="right")) - 1
                inside = numbers - self.first_rows[part]
                yield Read(part, inside.tolist(), numbers.tolist(), where.tolist())


@dataclass(frozen=True, slots=True)
class Read:
    """Rows of one part, ascending, with their numbers in the source and their places in the shard."""

    part: int
    rows: Sequence[int]
    numbers: Sequence[int]
    places: Sequence[int]


def plan(survey: Survey, shard_bytes: int, shard_rows: int | None, shuffle_seed: int | None) -> Plan:
    """Cut the records, mixed or in their order, into shards."""
    num_rows = len(survey.sizes)
    if shuffle_seed is None:
        order = np.arange(num_rows, dtype=np.int64)
    else:
        order = keyed_permutation(num_rows, key64(shuffle_seed, 0, 0, _SHUFFLE_STREAM))
    first_rows = np.concatenate([np.zeros(1, np.int64), np.cumsum(survey.part_rows)])
    return Plan(order, _stops(survey.sizes[order], shard_bytes, shard_rows), first_rows, survey.sizes)


def _stops(sizes: NDArray[np.int64], shard_bytes: int, shard_rows: int | None) -> NDArray[np.int64]:
    """Where shards end: as many records as fit, at least one."""
    filled = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes + ROW_BYTES)])
    stops = [0]
    while stops[-1] < len(sizes):
        start = stops[-1]
        fitting = int(np.searchsorted(filled, filled[start] + shard_bytes, side="right")) - 1
        if shard_rows is not None:
            fitting = min(fitting, start + shard_rows)
        stops.append(max(fitting, start + 1))
    return np.array(stops, np.int64)
