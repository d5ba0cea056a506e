"""Items in order of a rank that changes all the time."""

from __future__ import annotations

import heapq
import itertools
from typing import Generic, TypeVar

Rank = tuple[int, ...]

_SLACK = 64

Item = TypeVar("Item")


class Ranking(Generic[Item]):
    """Each item once, with its rank. To put, remove and find the first costs O(log n), spread over all calls.

    A heap with what was put, of which only the last of each item counts; the rest goes when it comes up, or when it is
    more than half.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Rank, int, Item]] = []
        self._last: dict[Item, tuple[Rank, int]] = {}
        self._serials = itertools.count()

    def put(self, item: Item, rank: Rank) -> None:
        """Give an item a rank, which replaces the one that it has."""
        last = self._last.get(item)
        if last is not None and last[0] == rank:
            return
        serial = next(self._serials)
        self._last[item] = rank, serial
        heapq.heappush(self._heap, (rank, serial, item))
        if len(self._heap) > 2 * len(self._last) + _SLACK:
            self._heap = [(kept, number, item) for item, (kept, number) in self._last.items()]
            heapq.heapify(self._heap)

    def remove(self, item: Item) -> None:
        """Take an item out, if it is there."""
        self._last.pop(item, None)

    def first(self) -> tuple[Rank, Item] | None:
        """The item with the smallest rank, the one put first among equals; None if there is none."""
        while self._heap:
            rank, serial, item = self._heap[0]
            if self._last.get(item) == (rank, serial):
                return rank, item
            heapq.heappop(self._heap)
        return None
