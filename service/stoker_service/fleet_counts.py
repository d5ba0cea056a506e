"""How much of what a worker has read came from where, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class FleetCounts:
    """Sums since the worker started: bytes by where they came from, and its calls to other workers.

    ``local_bytes`` are from its own cache, ``peer_bytes`` from other workers, ``origin_bytes`` from where the data lie;
    ``given_bytes`` went to other workers. A call is ``served``, ``refused`` (an error, full, unreachable) or ``late``.
    """

    local_bytes: int = 0
    peer_bytes: int = 0
    origin_bytes: int = 0
    given_bytes: int = 0
    calls_served: int = 0
    calls_refused: int = 0
    calls_late: int = 0

    @property
    def origin_fraction(self) -> float | None:
        """Share of the bytes read that came from where the data lie, 0 to 1; None if nothing was read."""
        num_bytes = self.local_bytes + self.peer_bytes + self.origin_bytes
        return self.origin_bytes / num_bytes if num_bytes else None


NOTHING: Final = FleetCounts()
