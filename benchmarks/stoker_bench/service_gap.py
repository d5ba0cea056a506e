"""Measures the longest wait for a batch after one of two workers is killed with -9."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import stoker
from stoker_bench import machine, rates
from stoker_bench.service_processes import Service

TARGET_S = 1.0
BEAT_S = 0.25
NUM_WORKERS = 2


@dataclass(frozen=True, slots=True)
class Setting:
    """What is killed under which load: a consumer that takes every batch as soon as it can."""

    batch_size: int = 64
    num_kills: int = 5
    watch_s: float = 4.0


@dataclass(frozen=True, slots=True)
class Taken:
    """A batch that came at a moment, after a wait."""

    at_s: float
    wait_s: float


@dataclass(frozen=True, slots=True)
class Gap:
    """The longest wait while both workers lived, and the longest that a kill was followed by."""

    before_s: float
    after_s: float


def measure(pattern: str, setting: Setting, tell: Callable[[int, Gap], None]) -> list[Gap]:
    """Kill a worker again and again; each time another takes its place before the next is killed."""
    pipeline = stoker.Pipeline.preset("imagenet_train", pattern, batch_size=setting.batch_size)
    num_threads = max(1, machine.num_cores() // NUM_WORKERS)
    found = []
    with (
        Service(NUM_WORKERS, num_threads, beat_s=BEAT_S) as service,
        stoker.DataLoader(pipeline, service=service.url, output="torch") as loader,
    ):
        batches = rates.endless(loader)
        for kill_index in range(setting.num_kills):
            take_for(batches, setting.watch_s)  # both have their lanes, and what was queued is used up
            before = take_for(batches, setting.watch_s)
            service.kill_worker()
            after = take_for(batches, setting.watch_s)
            found.append(Gap(longest_s(before), longest_s(after)))
            tell(kill_index, found[-1])
            service.start_worker()
    return found


def take_for(batches: Iterator[Any], seconds: float, clock: Callable[[], float] = time.monotonic) -> list[Taken]:
    """Take batches until so much time is over; a wait that has begun is waited out, however long it gets."""
    taken: list[Taken] = []
    begun_s = before_s = clock()
    while before_s - begun_s < seconds:
        next(batches)
        now_s = clock()
        taken.append(Taken(now_s, now_s - before_s))
        before_s = now_s
    return taken


def longest_s(taken: Sequence[Taken]) -> float:
    """Return the longest wait."""
    return max(batch.wait_s for batch in taken)
