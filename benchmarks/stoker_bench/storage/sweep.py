"""Throughput and latency of small objects from far away, from 1 to 256 requests in flight.

The experiment of Svogor et al., Profiling and Improving the PyTorch Dataloader for high-latency Storage (2022), on a
server of our own: whether the client or the store is what stops scaling.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stoker.storage.open import open_store
from stoker_bench.storage import servers

PROFILE = "s3-far,tail=0"
LEVELS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class Options:
    """What is read: objects of ImageNet's mean size; ``min_reads`` at a level, and four for each in flight."""

    levels: tuple[int, ...] = LEVELS
    object_bytes: int = 115_000
    num_objects: int = 64
    min_reads: int = 24
    num_rounds: int = 5


def run(folder: Path, options: Options, say: Callable[[str], None], settle: Callable[[], None]) -> dict[str, Any]:
    """Return a row for each level: medians over the rounds."""
    bucket = folder / "objects"
    bucket.mkdir(parents=True, exist_ok=True)
    body = np.random.default_rng(0).bytes(options.object_bytes)
    for number in range(options.num_objects):
        (bucket / f"{number:04d}.bin").write_bytes(body)
    with servers.chaos(bucket, PROFILE) as served:
        store = open_store(servers.BUCKET, served.options)

        def read(number: int) -> float:
            begun_s = time.perf_counter()
            store.read(f"{servers.BUCKET}/{number % options.num_objects:04d}.bin", 0, options.object_bytes)
            return time.perf_counter() - begun_s

        rows = []
        for level in options.levels:
            settle()
            rows.append(_level(read, level, options))
            say(f"{level} in flight: {rows[-1]['mb_per_s']:.1f} MB/s, p99 {rows[-1]['p99_s']:.3f} s")
    return {"server": served.name, "object_bytes": options.object_bytes, "levels": rows}


def _level(read: Callable[[int], float], level: int, options: Options) -> dict[str, float]:
    num_reads = max(options.min_reads, 4 * level)
    rates, latencies = [], []
    with ThreadPoolExecutor(level) as threads:
        list(threads.map(read, range(level)))  # connections
        for _ in range(options.num_rounds):
            begun_s = time.perf_counter()
            latencies += list(threads.map(read, range(num_reads)))
            rates.append(num_reads * options.object_bytes / (time.perf_counter() - begun_s) / 1e6)
    p50, p95, p99 = (float(np.percentile(latencies, percent)) for percent in (50, 95, 99))
    return {
        "in_flight": level,
        "mb_per_s": statistics.median(rates),
        "low": min(rates),
        "high": max(rates),
        "p50_s": p50,
        "p95_s": p95,
        "p99_s": p99,
    }
