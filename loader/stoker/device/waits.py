"""What the trainer waited for, told from what the thread before it waited for; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

STAGES: Final = ("read", "decode", "network", "device")
"""What a batch is waited for, in the order that it goes through them."""

_VERDICTS: Final = {"read": "storage", "decode": "decode", "network": "network", "device": "device"}


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds by stage."""

    read: float = 0.0
    decode: float = 0.0
    network: float = 0.0
    device: float = 0.0

    @classmethod
    def of_supply(cls, stats: Mapping[str, Any]) -> Waits:
        """What a supply has waited since it was opened; what it waited for a start counts as none."""
        return cls(*(float(stats.get(f"wait_{stage}_s", 0.0)) for stage in STAGES))

    @property
    def total(self) -> float:
        return self.read + self.decode + self.network + self.device

    def __add__(self, other: Waits) -> Waits:
        return Waits(*(getattr(self, stage) + getattr(other, stage) for stage in STAGES))

    def __sub__(self, other: Waits) -> Waits:
        return Waits(*(getattr(self, stage) - getattr(other, stage) for stage in STAGES))

    def last(self, waited_s: float) -> Waits:
        """The stages of the last ``waited_s`` seconds: the trainer's, who came when the batch was on its way.

        What it waited beyond them all went into the change from thread to thread.
        """
        found: dict[str, float] = {}
        for stage in reversed(STAGES):
            found[stage] = min(waited_s, getattr(self, stage))
            waited_s -= found[stage]
        found["device"] += waited_s
        return Waits(**found)

    def verdict(self, between_s: float, num_batches: int) -> str:
        """As :func:`stoker.engine.stats.verdict`, with ``network`` and ``device`` for batches on their way."""
        total = self.total + between_s
        if num_batches == 0 or total == 0.0:
            return "unknown"
        if self.total < 0.02 * total:
            return "trainer"
        return _VERDICTS[max(STAGES, key=lambda stage: getattr(self, stage))]
