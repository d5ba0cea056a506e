"""The chunks that are in memory, each kept while an open window or a batch in the making needs it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from stoker.engine.feed import ChunkUse, Work
from stoker.formats.dataset import ChunkContent

Window = tuple[int, int]


@dataclass(slots=True)
class _Place:
    content: ChunkContent | None = None
    num_works: int = 0
    waiting: list[int] = field(default_factory=list)


class Shelf:
    """Bookkeeping only: not thread-safe, no I/O. Its owner calls it under a lock.

    A window is open from the first batch of a lane that touches it until each lane inside it has moved on. A chunk
    leaves the shelf when its window is closed and no batch in the making uses it.
    """

    def __init__(self, chunk_bytes: Callable[[int], int]) -> None:
        self._bytes_of = chunk_bytes
        self._places: dict[ChunkUse, _Place] = {}
        self._open: dict[Window, set[int]] = defaultdict(set)
        self._lane_windows: dict[int, set[Window]] = defaultdict(set)
        self._members: dict[Window, set[ChunkUse]] = defaultdict(set)
        self.held_bytes = 0
        """Bytes of all chunks that are here or asked for."""

    def chunk_bytes(self, use: ChunkUse) -> int:
        """What the chunk takes of the budget."""
        return self._bytes_of(use.chunk_index)

    def missing(self, work: Work) -> list[ChunkUse]:
        """The chunks of ``work`` that would have to be read."""
        return [use for use in work.uses if use not in self._places]

    def reserve(self, work: Work, ticket: int) -> tuple[list[ChunkUse], int]:
        """Take places for all chunks of ``work``.

        Returns the chunks to read, and how many the work waits for; :meth:`arrived` names ``ticket`` for each.
        """
        to_read = self.missing(work)
        for use in to_read:
            self._places[use] = _Place()
            self._members[use.epoch, use.window].add(use)
            self.held_bytes += self.chunk_bytes(use)
        num_waiting = 0
        for use in work.uses:
            place = self._places[use]
            place.num_works += 1
            if place.content is None:
                place.waiting.append(ticket)
                num_waiting += 1
        self._move_lane(work)
        return to_read, num_waiting

    def arrived(self, use: ChunkUse, content: ChunkContent) -> list[int]:
        """Put a chunk's content into its place; returns the tickets that waited for it."""
        place = self._places[use]
        place.content = content
        tickets, place.waiting = place.waiting, []
        return tickets

    def content(self, use: ChunkUse) -> ChunkContent:
        content = self._places[use].content
        assert content is not None, "a batch is decoded only after its chunks arrived"
        return content

    def release(self, work: Work) -> None:
        """A batch is made: it needs its chunks no longer."""
        for use in work.uses:
            self._places[use].num_works -= 1
            if not self._open.get((use.epoch, use.window)):
                self._drop_if_unused(use)

    def leave(self, lane_index: int) -> None:
        """Nothing more of this lane will be reserved: it leaves its windows."""
        for window in self._lane_windows.pop(lane_index, ()):
            self._leave(window, lane_index)

    def _move_lane(self, work: Work) -> None:
        now = {(use.epoch, use.window) for use in work.uses}
        before = self._lane_windows[work.lane_index]
        for window in now:
            self._open[window].add(work.lane_index)
        first = min(now)
        left = {window for window in before if window < first}
        self._lane_windows[work.lane_index] = (before - left) | now
        for window in left:
            self._leave(window, work.lane_index)

    def _leave(self, window: Window, lane_index: int) -> None:
        lanes = self._open[window]
        lanes.discard(lane_index)
        if lanes:
            return
        del self._open[window]
        for use in list(self._members[window]):
            self._drop_if_unused(use)

    def _drop_if_unused(self, use: ChunkUse) -> None:
        place = self._places[use]
        if place.num_works:
            return
        del self._places[use]
        self.held_bytes -= self.chunk_bytes(use)
        members = self._members[use.epoch, use.window]
        members.discard(use)
        if not members:
            del self._members[use.epoch, use.window]
