"""One way to get batches of augmented pictures, as the comparison drives it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Protocol


class Contender(Protocol):
    """Something whose images per second are measured again and again, in turn with others."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    def images_per_s(self, num_batches: int) -> float:
        """Measure a steady rate over ``num_batches`` batches; idle before and after."""
        ...


class Stream:
    """A contender that yields the number of rows of each batch, without end.

    While others are measured, its queues fill up; ``num_queued`` batches, as many as they can hold, are thrown away
    before its own measurement begins.
    """

    def __init__(self, name: str, title: str, batches: Iterator[int], num_queued: int) -> None:
        self.name = name
        self.title = title
        self._batches = batches
        self._num_queued = num_queued

    def images_per_s(self, num_batches: int) -> float:
        for _ in range(self._num_queued):
            next(self._batches)
        started = time.perf_counter()
        num_images = sum(next(self._batches) for _ in range(num_batches))
        return num_images / (time.perf_counter() - started)
