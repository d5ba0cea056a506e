"""Running sums of a peer, and how much they grew of late."""

from __future__ import annotations

from dataclasses import dataclass

Reading = tuple[float, ...]
"""A time in seconds, then running sums that peers tell."""


@dataclass(slots=True)
class Meter:
    """Remembers the last reading and one that is one to two ``span_s`` older, or the first.

    Constant in time and memory: a peer beats for weeks. Readings that go backwards (a repeated beat, a peer that counts
    anew) begin a new measurement.
    """

    span_s: float
    _old: Reading | None = None
    _middle: Reading | None = None
    last: Reading | None = None

    def add(self, reading: Reading) -> None:
        old, middle, last = self._old, self._middle, self.last
        if old is None or middle is None or last is None or _goes_back(last, reading):
            self._old = self._middle = reading
        elif reading[0] - middle[0] >= self.span_s:
            self._old, self._middle = middle, reading
        self.last = reading

    def change(self) -> Reading | None:
        """Seconds passed and how much each sum grew in them; None before there are two readings."""
        if self._old is None or self.last is None or self.last[0] <= self._old[0]:
            return None
        return tuple(after - before for before, after in zip(self._old, self.last, strict=True))


def _goes_back(last: Reading, reading: Reading) -> bool:
    return any(after < before for before, after in zip(last, reading, strict=True))
