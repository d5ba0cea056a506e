"""Counts of what a cache served."""

from __future__ import annotations

import threading
from collections import Counter

from stoker.storage.cache.stats import CacheStats


class Tally:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def hit_ram(self, num_bytes: int) -> None:
        self._add(hits_ram=1, bytes_ram=num_bytes)

    def hit_disk(self, num_bytes: int) -> None:
        self._add(hits_disk=1, bytes_disk=num_bytes)

    def missed(self, num_bytes: int, *, kept: bool) -> None:
        self._add(misses=1, bytes_missed=num_bytes, declined=0 if kept else 1)

    def evicted(self, num_entries: int) -> None:
        self._add(evicted=num_entries)

    def stats(self) -> CacheStats:
        with self._lock:
            return CacheStats(**self._counts)

    def after_fork(self) -> None:
        """The child begins at nought."""
        self._lock = threading.Lock()
        self._counts = Counter()

    def _add(self, **counts: int) -> None:
        with self._lock:
            self._counts.update(counts)
