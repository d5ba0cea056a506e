"""When each chunk of a data set is read, in the epochs to come."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stoker.engine.feed import ChunkUse, Feed
from stoker.plan.order import Order
from stoker.storage.use import NEVER, Use

_MAX_EPOCHS: Final = 3
_LAST: Final = float(np.nextafter(1.0, 0.0))


@dataclass(frozen=True, slots=True)
class Reading:
    """One epoch's reads, in parts of the epoch from 0 to 1; arrays by chunk, NEVER where it is not read.

    ``first`` is when a chunk is read; ``again`` when it is read once more, because its window reaches from one lane
    into the next. ``chunk_at`` has the chunks that are read, by ``first``.
    """

    chunk_at: NDArray[np.int64]
    first: NDArray[np.float64]
    again: NDArray[np.float64]


def reading(order: Order, num_lanes: int, lane_step: int, first_lane: int) -> Reading:
    """When a rank reads the chunks of an epoch's order.

    Its lanes are ``first_lane`` and every ``lane_step``-th after it, read side by side, each from front to back. A
    window's chunks are read when the first of its lanes enters it, and kept until the last has left.
    """
    num_chunks = len(order.chunk_at)
    first, again = np.full(num_chunks, NEVER), np.full(num_chunks, NEVER)
    if order.num_samples:
        stops = order.stops[order.window_chunks - 1 :: order.window_chunks]
        stops = np.append(stops, order.num_samples) if num_chunks % order.window_chunks else stops
        window_first, window_again = _of_windows(stops, num_lanes, lane_step, first_lane)
        window = np.arange(num_chunks) // order.window_chunks
        first[order.chunk_at], again[order.chunk_at] = window_first[window], window_again[window]
    in_order = order.chunk_at[np.argsort(first[order.chunk_at], kind="stable")]
    return Reading(in_order[: int(np.count_nonzero(first != NEVER))], first, again)


def _of_windows(
    stops: NDArray[np.int64], num_lanes: int, lane_step: int, first_lane: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """First and second read of each window; ``stops[i]`` is the number of samples up to and with the i-th."""
    starts = np.concatenate([[0], stops[:-1]])
    lane_rows = max(float(stops[-1]) / num_lanes, 1.0)
    lane, last_lane = (starts // lane_rows).astype(np.int64), ((stops - 1) // lane_rows).astype(np.int64)
    enters = np.minimum(starts / lane_rows - lane, _LAST)
    is_own = (lane - first_lane) % lane_step == 0
    next_own = lane + 1 + (first_lane - lane - 1) % lane_step  # the first lane behind ``lane`` that is this rank's
    reaches = next_own <= last_lane
    leaves = np.where(next_own < last_lane, 1.0, stops / lane_rows - last_lane)
    first = np.where(reaches, 0.0, np.where(is_own, enters, NEVER))
    again = np.where(reaches & is_own & (enters > leaves), enters, NEVER)
    return first, again


class Future:
    """The reads of one rank, or of all workers together, by chunk and epoch. Safe for many threads.

    Up to three epochs are held, 24 bytes a chunk each.
    """

    def __init__(self, feed: Feed, job: str, *, all_ranks: bool = False) -> None:
        self.job: Final = job
        self._feed = feed
        lanes, rank = feed.pipeline.lanes, feed.deal.rank
        self._lane_step = 1 if all_ranks else int(np.gcd(lanes, rank.world_size))
        self._first_lane = 0 if all_ranks else rank.index
        self._lock = threading.Lock()
        self._epochs: OrderedDict[int, tuple[Reading, set[int]]] = OrderedDict()

    def epoch(self, epoch: int) -> Reading:
        """The reads of an epoch."""
        with self._lock:
            return self._known(epoch)[0]

    def use(self, use: ChunkUse) -> Use:
        """A read that is made now, with the one after it."""
        chunk = use.chunk_index
        with self._lock:
            here, begun = self._known(use.epoch)
            first, again = float(here.first[chunk]), float(here.again[chunk])
            if again != NEVER and chunk not in begun:
                begun.add(chunk)
                return Use(self.job, use.epoch + first, use.epoch + again)
            now = first if again == NEVER else again
            later = use.epoch + 1 + float(self._known(use.epoch + 1)[0].first[chunk])
        return Use(self.job, use.epoch + (0.0 if now == NEVER else now), later)

    def _known(self, epoch: int) -> tuple[Reading, set[int]]:
        found = self._epochs.get(epoch)
        if found is None:
            made = reading(self._feed.order(epoch), self._feed.pipeline.lanes, self._lane_step, self._first_lane)
            found = self._epochs[epoch] = made, set()
        self._epochs.move_to_end(epoch)
        while len(self._epochs) > _MAX_EPOCHS:
            self._epochs.popitem(last=False)
        return found
