"""The batches of one rank as work to do, epoch after epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stoker.formats.dataset import ChunkTable
from stoker.pipeline import Pipeline
from stoker.plan import resume
from stoker.plan.order import Order, sequential, shuffled
from stoker.plan.steps import PlannedBatch, Steps


@dataclass(frozen=True, slots=True)
class ChunkUse:
    """A chunk as one window of one epoch uses it; what is read once and kept while the window is open."""

    epoch: int
    window: int
    chunk_index: int


@dataclass(frozen=True, slots=True)
class Work:
    """One batch to make: row ``i`` is row ``rows[i]`` of the chunk ``uses[use_at[i]]``; numbered ``samples[i]``."""

    epoch: int
    batch_index: int
    lane_index: int
    samples: NDArray[np.int64]
    rows: NDArray[np.int64]
    use_at: NDArray[np.int64]
    uses: tuple[ChunkUse, ...]
    mask: NDArray[np.bool_] | None

    @property
    def num_rows(self) -> int:
        return len(self.samples)


@dataclass(frozen=True, slots=True)
class Feed:
    """Turns positions into work for one rank of a world."""

    pipeline: Pipeline
    chunks: ChunkTable
    rank: int
    world_size: int

    def order(self, epoch: int) -> Order:
        """The order of an epoch, which neither rank nor batch size change."""
        if self.pipeline.shuffle is False:
            return sequential(self.chunks.num_rows, epoch=epoch)
        window = 1 if self.pipeline.shuffle == "full" else self.pipeline.window
        return shuffled(self.chunks.num_rows, window_chunks=window, seed=self.pipeline.seed, epoch=epoch)

    def start(self, epoch: int) -> resume.Position:
        """The beginning of an epoch."""
        return resume.start(
            epoch, self.chunks.num_samples, batch_size=self.pipeline.batch_size, num_lanes=self.pipeline.lanes
        )

    def steps(self, position: resume.Position) -> Steps:
        """The steps that are left of the position's epoch."""
        tail = self.pipeline.tail_for(self.world_size)
        return Steps(position.lanes, self.world_size, tail, first_batch=position.num_consumed)

    def work(self, position: resume.Position) -> Iterator[Work]:
        """This rank's work from ``position`` on, going over to the next epoch at each epoch's end."""
        while True:
            steps = self.steps(position)
            order = self.order(position.epoch)
            for step in range(steps.num_steps):
                yield self._one(order, steps.batch(step, self.rank))
            position = self.start(position.epoch + 1)
            if self.steps(position).num_steps == 0:
                return

    def _one(self, order: Order, batch: PlannedBatch) -> Work:
        chunks, rows = order.at(batch.positions)
        windows = order.windows(batch.positions)
        num_chunks = len(self.chunks.num_rows)
        pairs, use_at = np.unique(windows * num_chunks + chunks, return_inverse=True)
        uses = tuple(ChunkUse(order.epoch, *divmod(int(pair), num_chunks)) for pair in pairs)
        samples = self.chunks.first_sample[chunks] + rows
        return Work(order.epoch, batch.batch_index, batch.lane_index, samples, rows, use_at, uses, batch.mask)
