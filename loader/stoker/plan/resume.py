"""Where an epoch stands, as a small value that outlives the plan it was made with."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from stoker.errors import StateError
from stoker.plan.lanes import Lanes
from stoker.plan.ranges import Range, Ranges

VERSION = 1


@dataclass(frozen=True, slots=True)
class Position:
    """The first ``num_consumed`` batches of ``lanes`` are consumed in ``epoch``, and those in ``ahead`` beyond them.

    ``ahead`` is empty where batches are taken in order. It ascends, and holds batches of one rank of ``world_size``.
    """

    epoch: int
    lanes: Lanes
    num_consumed: int = 0
    ahead: tuple[int, ...] = ()
    world_size: int = 1

    def taken(self, batch_index: int, rank: int, world_size: int) -> Position:
        """The position once ``rank`` of ``world_size`` has also taken this batch of its own, and no other rank lags."""
        ahead = {*self.ahead, batch_index}
        num_consumed = self.num_consumed
        while num_consumed + rank in ahead:
            ahead.remove(num_consumed + rank)
            num_consumed += world_size
        return Position(self.epoch, self.lanes, num_consumed, tuple(sorted(ahead)), world_size if ahead else 1)

    def dealt_again(self, *, batch_size: int, num_lanes: int, rank: int, world_size: int) -> Position:
        """The same rest of the epoch for ``rank`` of ``world_size``, under another batch size or number of lanes.

        With those as before, nothing changes. Otherwise what remains becomes the order that new lanes are cut from.
        Raises StateError if another rank of several has taken batches ahead, since nobody knows those of the others.
        """
        is_same_cut = (batch_size, num_lanes) == (self.lanes.batch_size, self.lanes.num_lanes)
        if is_same_cut and (not self.ahead or (rank, world_size) == (self._rank_ahead, self.world_size)):
            return self
        if self.ahead and self.world_size > 1:
            raise StateError(
                f"the state was saved with in_order=False by rank {self._rank_ahead} of {self.world_size}, whose "
                "batches came out of order, so it continues that rank alone, with batch_size="
                f"{self.lanes.batch_size} and lanes={self.lanes.num_lanes}; found rank {rank} of {world_size}, "
                f"batch_size={batch_size} and lanes={num_lanes}"
            )
        rest = self.lanes.remaining(self.num_consumed)
        for batch_index in self.ahead:
            rest = rest.without(self.lanes.ranges.cut(*self.lanes.places(batch_index)))
        return Position(self.epoch, Lanes(rest, batch_size, num_lanes))

    @property
    def _rank_ahead(self) -> int:
        return (self.ahead[0] - self.num_consumed) % self.world_size

    def to_json(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "ranges": [list(part) for part in self.lanes.ranges.parts],
            "batch_size": self.lanes.batch_size,
            "num_lanes": self.lanes.num_lanes,
            "num_consumed": self.num_consumed,
            **({"ahead": list(self.ahead), "world_size": self.world_size} if self.ahead else {}),
        }


def start(epoch: int, num_samples: int, *, batch_size: int, num_lanes: int) -> Position:
    """The beginning of an epoch."""
    parts: tuple[Range, ...] = ((0, num_samples),) if num_samples else ()
    return Position(epoch, Lanes(Ranges(parts), batch_size, num_lanes))


def from_json(saved: dict[str, Any]) -> Position:
    """Read what :meth:`Position.to_json` wrote. Raises StateError naming what is wrong with it."""
    try:
        parts = tuple((int(start), int(stop)) for start, stop in saved["ranges"])
        lanes = Lanes(Ranges(parts), int(saved["batch_size"]), int(saved["num_lanes"]))
        ahead = tuple(int(batch_index) for batch_index in saved.get("ahead", ()))
        world_size = int(saved.get("world_size", 1))
        position = Position(int(saved["epoch"]), lanes, int(saved["num_consumed"]), ahead, world_size)
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(f"the position of a saved state cannot be read: {error!r} in {saved!r}") from error
    if not _is_sound(position):
        raise StateError(f"the position of a saved state is not one that a loader can have made: {saved!r}")
    return position


def _is_sound(position: Position) -> bool:
    lanes, parts = position.lanes, position.lanes.ranges.parts
    ascending = all(before[1] < after[0] for before, after in pairwise(parts))
    filled = all(0 <= start < stop for start, stop in parts)
    counted = lanes.batch_size > 0 and lanes.num_lanes > 0 and position.num_consumed >= 0 and position.world_size > 0
    beyond = pairwise((position.num_consumed - 1, *position.ahead))
    return ascending and filled and counted and all(before < after for before, after in beyond)
