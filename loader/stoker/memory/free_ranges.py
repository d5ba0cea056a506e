"""Which ranges of an address space are free."""

from __future__ import annotations

from bisect import bisect_left


class FreeRanges:
    """Ranges of ``[0, num_bytes)``, given out first-fit from the front, joined with their neighbours when given back.

    Pure; not for several threads at once.
    """

    def __init__(self, num_bytes: int) -> None:
        self._starts = [0]
        self._stops = [num_bytes]

    def take(self, num_bytes: int) -> int | None:
        """Return where a range of so many bytes begins; None if no free one is long enough."""
        for i, start in enumerate(self._starts):
            if self._stops[i] - start >= num_bytes:
                self._starts[i] += num_bytes
                if self._starts[i] == self._stops[i]:
                    del self._starts[i], self._stops[i]
                return start
        return None

    def give(self, start: int, num_bytes: int) -> None:
        """Take a range back that :meth:`take` gave."""
        stop = start + num_bytes
        i = bisect_left(self._starts, start)
        joins_next = i < len(self._starts) and self._starts[i] == stop
        joins_last = i > 0 and self._stops[i - 1] == start
        if joins_last and joins_next:
            self._stops[i - 1] = self._stops[i]
            del self._starts[i], self._stops[i]
        elif joins_last:
            self._stops[i - 1] = stop
        elif joins_next:
            self._starts[i] = start
        else:
            self._starts.insert(i, start)
            self._stops.insert(i, stop)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The free ranges, in order."""
        return list(zip(self._starts, self._stops, strict=True))
