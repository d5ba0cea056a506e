"""Samplers as users write them, importable by name."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
from torch.utils.data import Sampler


class Backwards(Sampler[int]):
    """From the last to the first; remembers how many keys were asked for."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.given = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        for index in reversed(range(self.count)):
            self.given += 1
            yield index


class Drawn(Sampler[int]):
    """Draws from the global generators for every key."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.count):
            yield random.randrange(self.count) // 2 + int(np.random.randint(self.count)) // 2  # noqa: NPY002  # users' code


class Unequal(Sampler[list[int]]):
    """Batches of 1, 2, 3 … keys."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[list[int]]:
        start = 0
        for size in range(1, self.count + 1):
            yield list(range(start, start + size))
            start += size


class Changing(Sampler[int]):
    """Another order in each epoch, by ``set_epoch``."""

    def __init__(self, count: int) -> None:
        self.count, self.epoch = count, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return iter([(index * (2 * self.epoch + 1)) % self.count for index in range(self.count)])
