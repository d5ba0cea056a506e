"""Half-open ranges of positions that are dealt as if they were one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ascending, disjoint, non-empty ranges ``[start, stop)`` of an order, counted through from 0."""

    parts: tuple[Range, ...]

    @property
    def size(self) -> int:
        return sum(stop - start for start, stop in self.parts)

    def positions(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The order's positions of the places ``counts`` (each in ``[0, size)``)."""
        if len(self.parts) == 1:
            return counts + self.parts[0][0]
        starts = np.array([start for start, _ in self.parts], dtype=np.int64)
        ends = np.cumsum([stop - start for start, stop in self.parts], dtype=np.int64)
        part = np.searchsorted(ends, counts, side="right")
        return starts[part] + counts - np.where(part > 0, ends[part - 1], 0)

    def cut(self, first: int, last: int) -> tuple[Range, ...]:
        """The places ``[first, last)`` as ranges of the order."""
        found, passed = [], 0
        for start, stop in self.parts:
            low, high = max(first - passed, 0), min(last - passed, stop - start)
            if low < high:
                found.append((start + low, start + high))
            passed += stop - start
        return tuple(found)

    def without(self, parts: tuple[Range, ...]) -> Ranges:
        """The same ranges less ``parts``, which lie inside them."""
        left = list(self.parts)
        for low, high in parts:
            left = [
                piece
                for start, stop in left
                for piece in ((start, min(stop, low)), (max(start, high), stop))
                if piece[0] < piece[1]
            ]
        return Ranges(tuple(left))


def merged(parts: list[Range]) -> Ranges:
    """Sort ranges and join those that touch."""
    joined: list[Range] = []
    for start, stop in sorted(parts):
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return Ranges(tuple(joined))
