"""The trainer's own generators, left as they were."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class Generators:
    """The states of Python's, NumPy's and torch's global generators; equal if nothing was drawn in between."""

    of_python: tuple[Any, ...]
    of_numpy: tuple[Any, ...]
    of_torch: bytes

    @classmethod
    def now(cls) -> Self:
        name, keys, *rest = np.random.get_state(legacy=True)
        of_numpy = (name, np.asarray(keys).tobytes(), *rest)
        return cls(random.getstate(), of_numpy, torch.get_rng_state().numpy().tobytes())

    def put_back(self) -> None:
        """Let the generators give the same numbers again."""
        random.setstate(self.of_python)
        name, keys, *rest = self.of_numpy
        np.random.set_state((name, np.frombuffer(keys, np.uint32), *rest))
        torch.set_rng_state(torch.frombuffer(bytearray(self.of_torch), dtype=torch.uint8))


@contextmanager
def kept() -> Iterator[Generators]:
    """Put the generators back at the end; gives their states at the start."""
    before = Generators.now()
    try:
        yield before
    finally:
        before.put_back()
