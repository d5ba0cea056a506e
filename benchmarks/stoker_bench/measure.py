"""Times one consumer of batches: how long it waits, what that costs in CPU time and memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Waits:
    """How long ``next()`` took, in seconds: half, 95 and 99 in a hundred of the waits are no longer than this."""

    p50_s: float
    p95_s: float
    p99_s: float

    @classmethod
    def of(cls, waits_s: Sequence[float]) -> Waits:
        """Summarise waits; the next higher observed wait where a percentile lies between two."""
        if not waits_s:
            return cls(float("nan"), float("nan"), float("nan"))
        return cls(*(float(np.percentile(waits_s, percent, method="higher")) for percent in (50, 95, 99)))


@dataclass(frozen=True, slots=True)
class Drive:
    """What a consumer saw that did nothing with its batches.

    ``first_s`` runs from the call to the first batch. The rate is that of the batches after the first; the CPU time is
    of the whole process, from the call on, over all samples.
    """

    num_batches: int
    num_samples: int
    first_s: float
    total_s: float
    cpu_s: float
    samples_per_s: float
    waits: Waits

    @property
    def cpu_s_per_1000_samples(self) -> float:
        return 1000 * self.cpu_s / self.num_samples if self.num_samples else float("nan")


def drive(open_batches: Callable[[], Iterator[Any]], num_batches: int, num_rows: Callable[[Any], int]) -> Drive:
    """Take ``num_batches`` batches as fast as they come, fewer if they end; keeps none of them."""
    cpu_before = time.process_time()
    started = before = time.perf_counter()
    waits_s: list[float] = []
    rows: list[int] = []
    batches = open_batches()
    for _ in range(num_batches):
        batch = next(batches, None)
        if batch is None:
            break
        now = time.perf_counter()
        waits_s.append(now - before)
        rows.append(num_rows(batch))
        before = now
        del batch
    first_s = waits_s[0] if waits_s else float("nan")
    after_first_s = sum(waits_s[1:])
    return Drive(
        num_batches=len(rows),
        num_samples=sum(rows),
        first_s=first_s,
        total_s=before - started,
        cpu_s=time.process_time() - cpu_before,
        samples_per_s=sum(rows[1:]) / after_first_s if after_first_s > 0 else float("nan"),
        waits=Waits.of(waits_s[1:]),
    )


def reset_peak_memory() -> bool:
    """Let the peak of this process's resident memory start anew; False where the system cannot."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_memory_bytes() -> int:
    """Return the peak of this process's resident memory since the last reset."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
