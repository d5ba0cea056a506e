"""Which batch a rank gets at a step: equal steps on every rank, known before the epoch starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stoker.plan.lanes import Lanes

Tail = Literal["short", "drop", "pad", "repeat"]
"""What becomes of the end of an epoch that does not fill a step.

``short``: the last batch has fewer rows (one rank only). ``drop``: only full batches in full steps. ``pad``: filled up
from the start of the order, the filler masked. ``repeat``: the same, unmasked.
"""


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """One batch of one rank. ``positions`` are places in the order; ``mask`` is False for filler."""

    batch_index: int
    lane_index: int
    positions: NDArray[np.int64]
    mask: NDArray[np.bool_] | None


@dataclass(frozen=True, slots=True)
class Steps:
    """The batches of ``lanes`` from ``first_batch`` on, dealt to ``world_size`` ranks.

    Step ``s`` is the batches ``first_batch + s * world_size`` and those after it; rank ``r`` gets the r-th of them.
    """

    lanes: Lanes
    world_size: int
    tail: Tail
    first_batch: int = 0

    @property
    def num_steps(self) -> int:
        if self.tail == "drop":
            return max(0, self.lanes.num_full - self.first_batch) // self.world_size
        return -(-max(0, self.lanes.num_batches - self.first_batch) // self.world_size)

    def batch(self, step: int, rank: int) -> PlannedBatch:
        """The batch of ``rank`` at ``step``, both counted from 0."""
        batch_index = self.first_batch + step * self.world_size + rank
        first, last = self.lanes.places(batch_index)
        size = self.lanes.ranges.size
        if self.tail in ("pad", "repeat"):
            last = first + self.lanes.batch_size
        places = np.arange(first, last, dtype=np.int64)
        mask = places < size if self.tail == "pad" else None
        positions = self.lanes.ranges.positions(places % size if last > size else places)
        return PlannedBatch(batch_index, batch_index % self.lanes.num_lanes, positions, mask)

    def consumed(self, num_steps: int) -> int:
        """How many batches of ``lanes`` are consumed after ``num_steps`` of these steps."""
        return self.first_batch + num_steps * self.world_size
