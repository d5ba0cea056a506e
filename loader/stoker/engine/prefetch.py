"""Brings chunks into the cache before the readers come to them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from stoker.engine.ahead import MAX_IN_FLIGHT, Ahead, how_far, most_bytes
from stoker.engine.future import Future
from stoker.errors import StorageError
from stoker.formats.dataset import Dataset
from stoker.storage.daemon_pool import DaemonPool
from stoker.storage.meter import StorageStats
from stoker.storage.use import Use

_DECIDE_EVERY: Final = 16
"""Reads between two decisions on how far ahead to be."""


class Prefetcher:
    """Walks the order of an epoch, and of the next, ahead of the reads that it is told of. Safe for many threads.

    It has threads only while it brings something. What it cannot bring is left to the readers, which report it.
    """

    def __init__(self, dataset: Dataset, future: Future, storage: Callable[[], StorageStats]) -> None:
        self._dataset = dataset
        self._future = future
        self._storage = storage
        self._data_bytes = int(dataset.chunks.size_bytes.sum())
        self._lock = threading.Lock()
        self._pool = DaemonPool(MAX_IN_FLIGHT, "stoker-prefetch")
        self._ahead = Ahead(0, 1)
        self._now = -1.0
        self._walk: Iterator[tuple[int, float]] = iter(())
        self._next: tuple[int, float] | None = None
        self._leads: deque[tuple[float, int]] = deque()  # when each chunk ahead is read, and its bytes
        self._lead_bytes = 0
        self._num_flying = 0
        self._read_bytes = 0
        self._num_reads = 0
        self._begun_s = time.monotonic()
        self._is_closed = False

    def moved(self, use: Use, num_bytes: int) -> None:
        """A reader has begun to read a chunk of so many bytes."""
        with self._lock:
            self._read_bytes += num_bytes
            self._num_reads += 1
            if use.now < self._now - 0.5 or self._now < 0:  # the loader was sent elsewhere
                self._restart(use.now)
            self._now = max(self._now, use.now)
            if self._num_reads % _DECIDE_EVERY == 0:
                self._decide()
            self._fly()

    def close(self) -> None:
        """Bring nothing more; what is under way is left to end."""
        with self._lock:
            self._is_closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _restart(self, now: float) -> None:
        self._now = now
        self._walk = self._coming(int(now), now)
        self._next = next(self._walk, None)
        self._leads.clear()
        self._lead_bytes = 0

    def _coming(self, epoch: int, now: float) -> Iterator[tuple[int, float]]:
        """The chunks that are read from ``now`` on, each with its time."""
        while True:
            reading = self._future.epoch(epoch)
            if not len(reading.chunk_at):
                return
            for chunk in reading.chunk_at.tolist():
                when = epoch + float(reading.first[chunk])
                if when > now:
                    yield chunk, when
            epoch += 1

    def _decide(self) -> None:
        now_s = time.monotonic()
        found = self._storage()
        self._ahead = how_far(
            demand_bytes_per_s=self._read_bytes / max(now_s - self._begun_s, 1e-3),
            latency_p50_s=found.latency_p50_s,
            latency_p99_s=found.latency_p99_s,
            chunk_bytes=self._read_bytes / self._num_reads,
            most_bytes=most_bytes(self._dataset.stores.cache_bytes, self._data_bytes),
        )
        self._read_bytes, self._num_reads, self._begun_s = 0, 0, now_s

    def _fly(self) -> None:
        """Start as many as are to be under way, of those that come within the lead."""
        while self._leads and self._leads[0][0] <= self._now:
            self._lead_bytes -= self._leads.popleft()[1]
        while self._next is not None and self._next[1] <= self._now:
            self._next = next(self._walk, None)
        while self._next is not None and not self._is_closed and self._num_flying < self._ahead.in_flight:
            chunk, when = self._next
            num_bytes = int(self._dataset.chunks.size_bytes[chunk])
            if self._lead_bytes + num_bytes > self._ahead.num_bytes or when > self._now + 1:
                return
            self._next = next(self._walk, None)
            self._leads.append((when, num_bytes))
            self._lead_bytes += num_bytes
            self._num_flying += 1
            self._pool.submit(self._bring, chunk, Use(self._future.job, self._now, when))

    def _bring(self, chunk: int, use: Use) -> None:
        try:
            ranges = self._dataset.ranges(chunk)
            self._dataset.stores.bring(ranges, [use] * len(ranges))
        except StorageError:
            return  # the reader that comes to it has the same, and says so
        finally:
            with self._lock:
                self._num_flying -= 1
                self._fly()
