"""A cache with FIFO eviction and prefetch by thresholds, as DELI has it; the mechanism only, to compare with.

After *Accelerating Deep Learning Training from Cloud Buckets* (arXiv 2108.06322): a sampler keeps a queue of indices
to come; when ``threshold`` or fewer are left in it, it asks a prefetch server for the next ``fetch`` objects, which are
put into a cache of ``capacity`` objects together once all have come. A miss reads the bucket, and is not kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

Read = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class Setting:
    """In objects. ``fetch=0``: no prefetch, and a miss is kept."""

    fetch: int
    threshold: int
    capacity: int


class Fifo:
    """At most ``capacity`` objects, the oldest first out. Safe for many threads."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._held: OrderedDict[int, bytes] = OrderedDict()

    def get(self, index: int) -> bytes | None:
        with self._lock:
            return self._held.get(index)

    def put(self, objects: Sequence[tuple[int, bytes]]) -> None:
        with self._lock:
            for index, body in objects:
                self._held[index] = body
            while len(self._held) > self._capacity:
                self._held.popitem(last=False)


class Deli:
    """Batches of an epoch through such a cache, which stays from epoch to epoch."""

    def __init__(self, read: Read, setting: Setting, num_threads: int) -> None:
        self._read = read
        self._setting = setting
        self._cache = Fifo(setting.capacity)
        self._threads = ThreadPoolExecutor(num_threads)
        self._server = ThreadPoolExecutor(64)  # one for each fetch under way, as DELI forks a process for each
        self.num_reads = self.num_misses = 0

    def epoch(self, order: Sequence[int], batch_size: int) -> Iterator[list[bytes]]:
        """One epoch's batches, each of objects read one after the other."""
        coming = self._drawn(order)
        while batch := [self._object(index) for _, index in zip(range(batch_size), coming, strict=False)]:
            yield batch

    def close(self) -> None:
        self._server.shutdown()
        self._threads.shutdown()

    def _drawn(self, order: Sequence[int]) -> Iterator[int]:
        left = deque(order)
        queue: deque[int] = deque()
        while left or queue:
            if len(queue) <= self._setting.threshold and left:
                count = self._setting.fetch or len(left)
                taken = [left.popleft() for _ in range(min(count, len(left)))]
                queue.extend(taken)
                if self._setting.fetch:
                    self._fetch(taken)
            yield queue.popleft()

    def _fetch(self, indices: Sequence[int]) -> Future[None]:
        return self._server.submit(self._bring, [index for index in indices if self._cache.get(index) is None])

    def _bring(self, indices: Sequence[int]) -> None:
        self._cache.put(list(zip(indices, self._threads.map(self._read, indices), strict=True)))

    def _object(self, index: int) -> bytes:
        self.num_reads += 1
        found = self._cache.get(index)
        if found is not None:
            return found
        self.num_misses += 1
        body = self._read(index)
        if not self._setting.fetch:
            self._cache.put([(index, body)])
        return body
