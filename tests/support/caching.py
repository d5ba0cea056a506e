"""An origin that counts, a job that reads in a new order each epoch, and Belady's optimum for it."""

from __future__ import annotations

import math
import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from stoker.storage.cache.entry_file import HEADER_BYTES
from stoker.storage.store import ObjectRange
from stoker.storage.use import Use


def body(wanted: ObjectRange) -> bytes:
    """What the origin has there; the same in every process."""
    return random.Random(f"{wanted.url} {wanted.start} {wanted.version}").randbytes(wanted.num_bytes)


def ranges(sizes: Sequence[int], version: str = "v1") -> list[ObjectRange]:
    """One range of each size."""
    return [ObjectRange(f"s3://bucket/{i:05}.tar", 512, 512 + size, version) for i, size in enumerate(sizes)]


class Origin:
    """Counts how often each range was loaded; call it as ``load``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.loads: Counter[ObjectRange] = Counter()
        self.num_calls = 0

    def __call__(self, wanted: Sequence[ObjectRange]) -> list[memoryview]:
        with self._lock:
            self.loads.update(wanted)
            self.num_calls += 1
        return [memoryview(body(each)) for each in wanted]


class Clock:
    """Seconds that pass when told."""

    def __init__(self, at_s: float = 1e9) -> None:
        self.at_s = at_s

    def __call__(self) -> float:
        return self.at_s


def job(name: str, num_ranges: int, num_epochs: int, seed: int) -> Iterator[tuple[int, Use]]:
    """Which range is read, and the use: each one once an epoch, in an order of its own."""
    chance = random.Random(seed)
    orders = [chance.sample(range(num_ranges), num_ranges) for _ in range(num_epochs + 1)]
    for epoch in range(num_epochs):
        later = {index: place for place, index in enumerate(orders[epoch + 1])}
        for place, index in enumerate(orders[epoch]):
            yield index, Use(name, epoch + place / num_ranges, epoch + 1 + later[index] / num_ranges)


def optimum(trace: Sequence[int], num_entries: int, first: int) -> float:
    """Belady's hit rate with bypass from read ``first`` on, for ranges of one size."""
    next_at: list[float] = [math.inf] * len(trace)
    seen: dict[int, int] = {}
    for place in reversed(range(len(trace))):
        next_at[place] = seen.get(trace[place], math.inf)
        seen[trace[place]] = place
    held: dict[int, float] = {}
    num_hits = 0
    for place, index in enumerate(trace):
        num_hits += index in held and place >= first
        held[index] = next_at[place]
        if len(held) > num_entries:
            del held[max(held, key=held.__getitem__)]
    return num_hits / (len(trace) - first)


def stored(sizes: Sequence[int]) -> int:
    """Bytes that ranges of these sizes take on disk."""
    return sum(sizes) + len(sizes) * HEADER_BYTES


def files_in(folder: Path) -> list[Path]:
    """Entries and parts that lie in a cache folder."""
    return [each for name in ("entries", "parts") for each in (folder / name).glob("*") if each.suffix != ".txt"]


def bytes_in(folder: Path) -> int:
    """What they take."""
    total = 0
    for each in files_in(folder):
        try:
            total += each.stat().st_size
        except FileNotFoundError:
            continue
    return total
