"""Samples whose making ends the process that does it."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_KILLERS = 1024
"""Samples that are remembered; a data set with more has another trouble."""

MAX_REASON_CHARS = 400


@dataclass(frozen=True, slots=True)
class Killer:
    """A sample, by its number in the data set, and how it ended its process."""

    sample: int
    reason: str


class Killers:
    """Those of one pipeline over one data set, so that none is tried again; for any thread. It only grows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reasons: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._reasons)

    def add(self, killers: Iterable[Killer]) -> None:
        """Remember samples, as long as there is room."""
        with self._lock:
            for killer in killers:
                if len(self._reasons) < MAX_KILLERS:
                    self._reasons.setdefault(killer.sample, killer.reason[:MAX_REASON_CHARS])

    def since(self, num_told: int) -> tuple[Killer, ...]:
        """Those beyond the first so many, in the order in which they were remembered."""
        with self._lock:
            return tuple(Killer(*item) for item in list(self._reasons.items())[num_told:])

    def get(self, sample: int) -> Killer | None:
        """The killer that a sample is, if it is one."""
        reason = self._reasons.get(sample)
        return None if reason is None else Killer(sample, reason)

    def among(self, samples: NDArray[np.int64]) -> dict[int, Killer]:
        """The killers among the samples of a batch, by row."""
        if not self._reasons:
            return {}
        found = ((row, self.get(sample)) for row, sample in enumerate(samples.tolist()))
        return {row: killer for row, killer in found if killer is not None}
