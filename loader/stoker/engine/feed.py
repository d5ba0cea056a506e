"""The batches of one rank as work to do, epoch after epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stoker.formats.dataset import ChunkTable
from stoker.pipeline import Pipeline
from stoker.plan import resume
from stoker.plan.order import Order, sequential, shuffled
from stoker.plan.steps import PlannedBatch, Steps
from stoker.ranks import Rank


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
class Deal:
    """How the epochs of a pipeline over ``num_samples`` samples are dealt to one rank; needs no access to the data."""

    pipeline: Pipeline
    num_samples: int
    rank: Rank

    def start(self, epoch: int) -> resume.Position:
        """The beginning of an epoch."""
        return resume.start(epoch, self.num_samples, batch_size=self.pipeline.batch_size, num_lanes=self.pipeline.lanes)

    def steps(self, position: resume.Position) -> Steps:
        """The steps that are left of the position's epoch, batches taken ahead included."""
        tail = self.pipeline.tail_for(self.rank.world_size)
        return Steps(position.lanes, self.rank.world_size, tail, first_batch=position.num_consumed)

    def num_left(self, position: resume.Position) -> int:
        """Batches that this rank has still to take of the position's epoch."""
        return self.steps(position).num_steps - len(position.ahead)

    def after(self, position: resume.Position) -> resume.Position:
        """Where batches are taken next: at ``position``, or in the next epoch, if nothing is left of this one."""
        return position if self.num_left(position) else self.start(position.epoch + 1)

    def taken(self, position: resume.Position, batch_index: int) -> resume.Position:
        """The position once this rank has also taken this batch."""
        return position.taken(batch_index, self.rank.index, self.rank.world_size)

    def following(self, position: resume.Position, batch_index: int) -> resume.Position:
        """Where batches are taken next once this rank has also taken this batch."""
        return self.after(self.taken(position, batch_index))

    def skipped(self, position: resume.Position, num_batches: int) -> resume.Position:
        """The position once so many batches of each rank are taken in order; the end of the epoch at most."""
        num_batches = min(num_batches, self.num_left(position))
        if not position.ahead:
            return replace(position, num_consumed=self.steps(position).consumed(num_batches))
        for _ in range(num_batches):
            position = self.taken(position, position.num_consumed + self.rank.index)
        return position


@dataclass(frozen=True, slots=True)
class Feed:
    """Turns positions into work for one rank of a world."""

    deal: Deal
    chunks: ChunkTable

    @property
    def pipeline(self) -> Pipeline:
        return self.deal.pipeline

    def order(self, epoch: int) -> Order:
        """The order of an epoch, which neither rank nor batch size change."""
        if self.pipeline.shuffle is False:
            return sequential(self.chunks.num_rows, epoch=epoch)
        window = 1 if self.pipeline.shuffle == "full" else self.pipeline.window
        return shuffled(self.chunks.num_rows, window_chunks=window, seed=self.pipeline.seed, epoch=epoch)

    def work(self, position: resume.Position) -> Iterator[Work]:
        """This rank's work from ``position`` on, going over to the next epoch at each epoch's end."""
        while True:
            steps = self.deal.steps(position)
            order = self.order(position.epoch)
            for step in range(steps.num_steps):
                batch = steps.batch(step, self.deal.rank.index)
                if batch.batch_index not in position.ahead:
                    yield self.work_of(order, batch)
            position = self.deal.start(position.epoch + 1)
            if self.deal.num_left(position) == 0:
                return

    def work_of(self, order: Order, batch: PlannedBatch) -> Work:
        """What has to be read and decoded for a batch of an epoch's order."""
        chunks, rows = order.at(batch.positions)
        windows = order.windows(batch.positions)
        num_chunks = len(self.chunks.num_rows)
        pairs, use_at = np.unique(windows * num_chunks + chunks, return_inverse=True)
        uses = tuple(ChunkUse(order.epoch, *divmod(int(pair), num_chunks)) for pair in pairs)
        samples = self.chunks.first_sample[chunks] + rows
        return Work(order.epoch, batch.batch_index, batch.lane_index, samples, rows, use_at, uses, batch.mask)
