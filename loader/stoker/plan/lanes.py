"""How an order is cut into lanes of batches."""

from __future__ import annotations

from dataclasses import dataclass

from stoker.plan.ranges import Range, Ranges, merged


@dataclass(frozen=True, slots=True)
class Lanes:
    """``num_lanes`` contiguous parts of ``ranges``, each a run of batches of ``batch_size`` samples.

    The full batches are cut into lanes whose lengths differ by at most one, the longer first. Batch ``b`` is the
    ``b // num_lanes``-th of lane ``b % num_lanes``; what is left at the end is one short batch, the last.
    """

    ranges: Ranges
    batch_size: int
    num_lanes: int

    @property
    def num_full(self) -> int:
        return self.ranges.size // self.batch_size

    @property
    def num_batches(self) -> int:
        """All batches, the short one at the end with them."""
        return -(-self.ranges.size // self.batch_size)

    def lane(self, lane_index: int) -> Range:
        """The lane's batches, counted in the order of positions."""
        length, longer = divmod(self.num_full, self.num_lanes)
        first = lane_index * length + min(lane_index, longer)
        return first, first + length + (lane_index < longer)

    def places(self, batch_index: int) -> Range:
        """The batch's samples as places ``[first, last)`` of ``ranges``.

        A batch beyond the last one lies beyond the ranges' end: it is filler, to be wrapped round to the start.
        """
        if batch_index >= self.num_full:
            first = batch_index * self.batch_size
            last = self.ranges.size if batch_index < self.num_batches else first + self.batch_size
            return first, last
        lane_start, _ = self.lane(batch_index % self.num_lanes)
        first = (lane_start + batch_index // self.num_lanes) * self.batch_size
        return first, first + self.batch_size

    def remaining(self, num_consumed: int) -> Ranges:
        """What is left of the order once the batches below ``num_consumed`` are consumed."""
        rest: list[Range] = []
        consumed_full = min(num_consumed, self.num_full)
        for lane_index in range(min(self.num_lanes, self.num_full)):
            first, last = self.lane(lane_index)
            first += max(0, -(-(consumed_full - lane_index) // self.num_lanes))
            rest.extend(self.ranges.cut(first * self.batch_size, last * self.batch_size))
        if num_consumed <= self.num_full:
            rest.extend(self.ranges.cut(self.num_full * self.batch_size, self.ranges.size))
        return merged(rest)
