"""One call of ``ChunkCache.read``: what is here, what others are getting, what is left to load.

Nobody waits in a circle. A range that is locked is loaded, kept and freed before its call waits for ranges of other
processes, which it does in one order for all; and it waits for other threads last, when nothing of its own is open.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, replace

from stoker.storage.cache.disk import lock_number
from stoker.storage.cache.flights import Flights
from stoker.storage.cache.locks import LockQueue
from stoker.storage.cache.tiers import Tiers
from stoker.storage.store import ObjectRange
from stoker.storage.use import Use

Load = Callable[[Sequence[ObjectRange]], Sequence[memoryview]]


@dataclass(slots=True, eq=False)
class Wanted:
    """A range of this call; ``view`` once it is there."""

    range: ObjectRange
    use: Use
    digest: bytes
    view: memoryview | None = None
    flight: Future[memoryview] | None = None


class Reading:
    """Gets ranges that differ; used once."""

    def __init__(self, tiers: Tiers, flights: Flights, load: Load, wait_s: float) -> None:
        self._tiers = tiers
        self._flights = flights
        self._load = load
        self._wait_s = wait_s
        self._locked: set[bytes] = set()

    def get(self, ranges: Sequence[Wanted], plain: Sequence[Wanted]) -> None:
        """Set ``view`` of all; those that are ``plain`` are only loaded."""
        mine: list[Wanted] = []
        others: list[Wanted] = []
        try:
            for each in ranges:
                self._begin(each, mine, others)
            elsewhere = self._here(mine)
            self._fetch([each for each in mine if each.digest in self._locked], plain)
            self._from_processes(elsewhere)
        finally:
            self._unlock(list(self._locked))
            self._flights.end(each.digest for each in mine)
        self._from_threads(others)

    def _begin(self, wanted: Wanted, mine: list[Wanted], others: list[Wanted]) -> None:
        wanted.view = self._tiers.in_memory(wanted.digest, wanted.use)
        if wanted.view is None:
            wanted.flight, is_mine = self._flights.join(wanted.digest)
            (mine if is_mine else others).append(wanted)

    def _here(self, mine: Sequence[Wanted]) -> list[Wanted]:
        """Take what is on disk, lock what is not, and return what another process is loading."""
        self._tiers.note([(each.digest, each.use) for each in mine])
        elsewhere = []
        for each in mine:
            if self._on_disk(each):
                continue
            if not self._lock(each.digest):
                elsewhere.append(each)
            elif self._on_disk(each):  # loaded between the two looks
                self._unlock([each.digest])
        return elsewhere

    def _on_disk(self, wanted: Wanted) -> bool:
        view = self._tiers.on_disk(wanted.digest, wanted.use, wanted.range.num_bytes)
        return view is not None and self._arrived(wanted, view)

    def _arrived(self, wanted: Wanted, view: memoryview) -> bool:
        wanted.view = view.toreadonly()
        if wanted.flight is not None and not wanted.flight.done():
            wanted.flight.set_result(wanted.view)
        return True

    def _fetch(self, ranges: Sequence[Wanted], plain: Sequence[Wanted] = ()) -> None:
        """Load ranges, pass them to those who wait, and keep them."""
        wanted = [*ranges, *plain]
        if not wanted:
            return
        views = self._load([each.range for each in wanted])
        for each, view in zip(wanted, views, strict=True):
            if view.nbytes != each.range.num_bytes:
                raise AssertionError(f"a load of {each.range.num_bytes} bytes returned {view.nbytes}")
            self._arrived(each, view)
        for each, view in zip(ranges, views, strict=False):
            self._tiers.keep(each.digest, view.toreadonly(), each.use)
            self._unlock([each.digest])

    def _from_processes(self, elsewhere: Sequence[Wanted]) -> None:
        disk = self._tiers.disk
        if not elsewhere or disk is None:
            return
        # A use right now: the process that loads it will find it worth keeping.
        disk.note([(each.digest, replace(each.use, next=each.use.now)) for each in elsewhere])
        queue = disk.queue()
        try:
            left = self._wait(queue, elsewhere)
            disk.note([(each.digest, each.use) for each in elsewhere])
            self._fetch(left)
        finally:
            if queue is not None:
                queue.close()

    def _wait(self, queue: LockQueue | None, elsewhere: Sequence[Wanted]) -> list[Wanted]:
        """Wait until others have loaded; returns what they did not, locked by the queue if that was in time."""
        deadline_s = time.monotonic() + self._wait_s
        left = []
        for each in sorted(elsewhere, key=lambda one: lock_number(one.digest)):
            number = lock_number(each.digest)
            is_locked = queue is not None and queue.lock(number, deadline_s - time.monotonic())
            if not is_locked:
                queue = None
            if not self._on_disk(each):
                left.append(each)
            elif queue is not None:
                queue.unlock(number)
        return left

    def _from_threads(self, others: Sequence[Wanted]) -> None:
        deadline_s = time.monotonic() + self._wait_s
        left = []
        for each in others:
            flight, each.flight = each.flight, None  # it is another's to fill
            try:
                view = flight.result(max(0.0, deadline_s - time.monotonic())) if flight else None
            except (CancelledError, FutureTimeout):
                view = None
            if view is None:
                left.append(each)
            else:
                self._tiers.shared(each.digest, view, each.use)
                self._arrived(each, view)
        self._tiers.note([(each.digest, each.use) for each in others])
        self._fetch(left)

    def _lock(self, digest: bytes) -> bool:
        if self._tiers.disk is not None and not self._tiers.disk.try_lock(digest):
            return False
        self._locked.add(digest)
        return True

    def _unlock(self, digests: Sequence[bytes]) -> None:
        for digest in digests:
            if digest in self._locked:
                self._locked.discard(digest)
                if self._tiers.disk is not None:
                    self._tiers.disk.unlock(digest)
