"""Counters of one loader, with the sentence that names what limits it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class Counters:
    """Running sums since the loader was made. Each is written under one lock, the maker's or the engine's.

    ``wait_*_s`` is what the trainer waited inside ``next()``: for chunks that were not there yet, or for samples that
    were not decoded yet; ``start_s`` is what it waited for the first batch after a start or a jump, which says nothing
    of the rate. ``between_s`` is the time it spent outside, on its own step.
    """

    batches: int = 0
    samples: int = 0
    bytes_read: int = 0
    bytes_made: int = 0
    reads: int = 0
    read_s: float = 0.0
    decode_s: float = 0.0
    assemble_s: float = 0.0
    start_s: float = 0.0
    wait_read_s: float = 0.0
    wait_decode_s: float = 0.0
    between_s: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def verdict(counters: Counters) -> str:
    """Which part limits the rate: ``storage``, ``decode`` or ``trainer``; ``unknown`` before the first batch.

    The trainer limits when it waits less than a fiftieth of the time; otherwise the larger of its waits is named.
    """
    waited = counters.wait_read_s + counters.wait_decode_s
    total = waited + counters.between_s
    if counters.batches == 0 or total == 0.0:
        return "unknown"
    if waited < 0.02 * total:
        return "trainer"
    return "storage" if counters.wait_read_s > counters.wait_decode_s else "decode"
