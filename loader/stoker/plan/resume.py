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
    """``num_consumed`` batches of ``lanes`` are consumed in ``epoch``."""

    epoch: int
    lanes: Lanes
    num_consumed: int = 0

    def dealt_again(self, *, batch_size: int, num_lanes: int) -> Position:
        """The same rest of the epoch under another batch size or number of lanes.

        With both as before, nothing changes. Otherwise what remains becomes the order that new lanes are cut from.
        """
        if (batch_size, num_lanes) == (self.lanes.batch_size, self.lanes.num_lanes):
            return self
        rest = self.lanes.remaining(self.num_consumed)
        return Position(self.epoch, Lanes(rest, batch_size, num_lanes))

    def to_json(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "ranges": [list(part) for part in self.lanes.ranges.parts],
            "batch_size": self.lanes.batch_size,
            "num_lanes": self.lanes.num_lanes,
            "num_consumed": self.num_consumed,
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
        position = Position(int(saved["epoch"]), lanes, int(saved["num_consumed"]))
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(f"the position of a saved state cannot be read: {error!r} in {saved!r}") from error
    if not _is_sound(position):
        raise StateError(f"the position of a saved state is not one that a loader can have made: {saved!r}")
    return position


def _is_sound(position: Position) -> bool:
    lanes, parts = position.lanes, position.lanes.ranges.parts
    ascending = all(before[1] < after[0] for before, after in pairwise(parts))
    filled = all(0 <= start < stop for start, stop in parts)
    return ascending and filled and lanes.batch_size > 0 and lanes.num_lanes > 0 and position.num_consumed >= 0
