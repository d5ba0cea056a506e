"""How a worker stands with another that it asks for ranges: it is asked, or left alone for a while."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Standing:
    """After a failure a peer is left alone for a second, then one call tries it, and so on, each time for longer.

    A call that was served makes all good again: take a new one. Times are of any one clock.
    """

    num_failures: int = 0
    failed_s: float = -math.inf
    until_s: float = -math.inf

    def allows(self, now_s: float) -> bool:
        """Whether to ask."""
        return now_s >= self.until_s

    def asked(self, now_s: float) -> Standing:
        """A call begins. Of a peer that failed before it is a trial, and nobody else asks meanwhile."""
        return Standing(self.num_failures, self.failed_s, now_s + self._pause_s) if self.num_failures else self

    def failed(self, begun_s: float, now_s: float) -> Standing:
        """A call that had begun then failed; several that were out at the same time fail once."""
        if begun_s <= self.failed_s:
            return self
        return Standing(self.num_failures + 1, now_s, now_s + self._pause_s)

    @property
    def _pause_s(self) -> float:
        return float(min(FIRST_PAUSE_S * 2.0 ** min(self.num_failures, 16), LONGEST_PAUSE_S))


GOOD: Final = Standing()
