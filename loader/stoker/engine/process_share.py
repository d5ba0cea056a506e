"""Which worker process makes which batch of a rank."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from stoker.engine.feed import Deal, Feed, Work
from stoker.plan.order import Order
from stoker.plan.resume import Position
from stoker.plan.steps import Steps


@dataclass(frozen=True, slots=True)
class Slot:
    """A batch of the rank, and who makes it."""

    epoch: int
    batch_index: int
    worker_index: int

    def __str__(self) -> str:
        return f"batch {self.batch_index} of epoch {self.epoch}"


@dataclass(frozen=True, slots=True)
class Share:
    """Deals the batches of a rank to ``num_workers`` workers; trainer and workers agree on it without a word."""

    deal: Deal
    num_workers: int

    def worker_of(self, batch_index: int) -> int:
        """The worker of a batch.

        Each lane has one worker, so that one process reads its chunks, for as many lanes as can be dealt evenly. The
        batches of the lanes that are over, all if there are fewer lanes than workers, go round all workers.
        """
        turn, lane = divmod(batch_index // self.deal.rank.world_size, self.num_lanes)
        num_over = self.num_lanes % self.num_workers
        num_fixed = self.num_lanes - num_over
        if lane < num_fixed:
            return lane % self.num_workers
        return (turn * num_over + lane - num_fixed) % self.num_workers

    @property
    def num_lanes(self) -> int:
        """Lanes that the rank takes batches of, in turn."""
        num_lanes = self.deal.pipeline.lanes
        return num_lanes // math.gcd(self.deal.rank.world_size, num_lanes)

    @property
    def num_lanes_each(self) -> int:
        """Lanes that one worker takes batches of, at most."""
        num_over = self.num_lanes % self.num_workers
        return self.num_lanes // self.num_workers + (num_over and num_over // math.gcd(num_over, self.num_workers))

    def slots(self, position: Position) -> Iterator[Slot]:
        """The rank's batches from ``position`` on, in order, over the ends of epochs."""
        for epoch, steps in self._epochs(position):
            for step in range(steps.num_steps):
                batch_index = self._batch_index(steps, step)
                if epoch != position.epoch or batch_index not in position.ahead:
                    yield Slot(epoch, batch_index, self.worker_of(batch_index))

    def work(self, feed: Feed, position: Position, worker_index: int, num_skipped: int = 0) -> Iterator[Work]:
        """What a worker does of them, in their order, without the first ``num_skipped``; ends if nothing more comes."""
        for epoch, steps in self._epochs(position):
            ahead = position.ahead if epoch == position.epoch else ()
            order: Order | None = None
            has_any = False
            for step in range(steps.num_steps):
                batch_index = self._batch_index(steps, step)
                if batch_index in ahead or self.worker_of(batch_index) != worker_index:
                    continue
                has_any = True
                if num_skipped:
                    num_skipped -= 1
                    continue
                order = order or feed.order(epoch)
                yield feed.work_of(order, steps.batch(step, self.deal.rank.index))
            if not has_any and epoch != position.epoch:
                return  # whole epochs are all dealt alike

    def _epochs(self, position: Position) -> Iterator[tuple[int, Steps]]:
        while True:
            yield position.epoch, self.deal.steps(position)
            position = self.deal.start(position.epoch + 1)
            if self.deal.num_left(position) == 0:
                return

    def _batch_index(self, steps: Steps, step: int) -> int:
        return steps.consumed(step) + self.deal.rank.index
