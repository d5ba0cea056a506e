"""Counts of what storage was asked for, what it answered, and how fast."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from stoker.storage.fork_news import tell_after_fork
from stoker.storage.latency import Latencies, bucket_of


@dataclass(frozen=True, slots=True)
class StorageStats:
    """What one meter, or several added up, counted.

    ``requests``: attempts that went to the store, of every kind (a listing is one, however many pages it has).
    ``bytes``: of all bodies, those that came for nothing too. ``retries``: attempts made because another failed.
    ``throttled``: answers that asked for fewer requests. ``hedges``: second requests sent while a first was slow;
    ``hedges_won``: those that answered first. ``resumed``: bodies that broke off and were continued there.
    ``corrupt``: bodies that did not have their checksum. ``latencies``: of the reads that were answered well.
    """

    requests: int = 0
    bytes: int = 0
    retries: int = 0
    throttled: int = 0
    hedges: int = 0
    hedges_won: int = 0
    resumed: int = 0
    corrupt: int = 0
    latencies: Latencies = field(default_factory=Latencies)

    @property
    def latency_p50_s(self) -> float:
        return self.latencies.percentile_s(0.5)

    @property
    def latency_p95_s(self) -> float:
        return self.latencies.percentile_s(0.95)

    @property
    def latency_p99_s(self) -> float:
        return self.latencies.percentile_s(0.99)

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, for ``stats()`` and metrics; the histogram itself is left out."""
        return {name: getattr(self, name) for name in (*_COUNTS, "latency_p50_s", "latency_p95_s", "latency_p99_s")}

    def __add__(self, other: StorageStats) -> StorageStats:
        counts = {name: getattr(self, name) + getattr(other, name) for name in _COUNTS}
        return StorageStats(**counts, latencies=self.latencies + other.latencies)


_COUNTS = ("requests", "bytes", "retries", "throttled", "hedges", "hedges_won", "resumed", "corrupt")


class Meter:
    """Counts the requests of one loader or of one worker's data set; safe for many threads, about 1 µs a count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._latencies: list[int] = []
        tell_after_fork(self)

    def answered(self, num_bytes: int = 0, latency_s: float | None = None) -> None:
        """A request was answered well; ``latency_s`` is given for reads."""
        bucket = -1 if latency_s is None else bucket_of(latency_s)
        with self._lock:
            self._counts["requests"] += 1
            self._counts["bytes"] += num_bytes
            if bucket >= len(self._latencies):
                self._latencies.extend([0] * (bucket + 1 - len(self._latencies)))
            if bucket >= 0:
                self._latencies[bucket] += 1

    def failed(self, num_bytes: int = 0, *, throttled: bool = False, corrupt: bool = False) -> None:
        """A request failed; ``num_bytes`` of a body had come."""
        with self._lock:
            self._counts["requests"] += 1
            self._counts["bytes"] += num_bytes
            self._counts["throttled"] += throttled
            self._counts["corrupt"] += corrupt

    def retried(self, *, resumed: bool) -> None:
        """A failed read is made again, or only the rest of its body."""
        with self._lock:
            self._counts["retries"] += 1
            self._counts["resumed"] += resumed

    def hedged(self) -> None:
        """A second request was sent for a slow one."""
        with self._lock:
            self._counts["hedges"] += 1

    def hedge_won(self) -> None:
        """The second request answered first."""
        with self._lock:
            self._counts["hedges_won"] += 1

    def stats(self) -> StorageStats:
        with self._lock:
            return StorageStats(**self._counts, latencies=Latencies(tuple(self._latencies)))

    def after_fork(self) -> None:
        self._lock = threading.Lock()
