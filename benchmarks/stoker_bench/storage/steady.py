"""A trainer with steps of fixed length over storage with a heavy tail: how long it waits."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import stoker
from stoker_bench.datasets import MadeShards
from stoker_bench.rounds import Spread
from stoker_bench.storage import servers

PROFILE = "gcs"  # 55 ms, the slowest percent up to 2 s
WAIT_TARGET = 0.01
P99_TARGET_S = 0.005


@dataclass(frozen=True, slots=True)
class Options:
    """Steps of ``step_s``; a batch is as large as ``load`` of what the machine makes in that time."""

    step_s: float = 0.05
    load: float = 0.8
    warm_up_steps: int = 60
    num_steps: int = 400
    num_rounds: int = 5


def run(made: MadeShards, options: Options, say: Callable[[str], None], settle: Callable[[], None]) -> dict[str, Any]:
    """Return the share of the time that the trainer waited, and the 99th percentile of a step's wait."""
    with servers.chaos(made.folder, PROFILE) as served:
        pattern = f"{servers.BUCKET}/shard-{{000000..{len(made.shards) - 1:06d}}}.tar"
        capacity = statistics.median(_capacity(pattern, served, settle) for _ in range(3))
        batch_size = max(1, int(options.load * capacity * options.step_s))
        say(f"capacity {capacity:,.0f} images/s: batches of {batch_size} every {1000 * options.step_s:.0f} ms")
        shares, p99s = [], []
        for number in range(options.num_rounds):
            settle()
            share, p99_s = _train(pattern, served, batch_size, options)
            shares.append(share)
            p99s.append(p99_s)
            say(f"round {number + 1}: waited {100 * share:.2f} %, p99 {1000 * p99_s:.1f} ms")
    return {
        "server": served.name,
        "capacity": capacity,
        "batch_size": batch_size,
        "wait_share": asdict(Spread.of(shares)),
        "p99_s": asdict(Spread.of(p99s)),
        "wait_target": WAIT_TARGET,
        "p99_target_s": P99_TARGET_S,
    }


def _loader(pattern: str, served: servers.Served, batch_size: int) -> stoker.DataLoader:
    source = stoker.tar(pattern, storage_options=served.options)
    pipeline = stoker.Pipeline.preset("imagenet_train", source, batch_size=batch_size)
    loader: stoker.DataLoader = stoker.DataLoader(pipeline, output="numpy")
    return loader


def _capacity(pattern: str, served: servers.Served, settle: Callable[[], None], num_batches: int = 60) -> float:
    """Images per second for a trainer that takes all it can get, from the same server."""
    settle()
    with _loader(pattern, served, 32) as loader:
        batches = (batch for _ in iter(int, 1) for batch in loader)
        for _ in range(num_batches // 2):
            next(batches)
        begun_s = time.perf_counter()
        for _ in range(num_batches):
            next(batches)
        return 32 * num_batches / (time.perf_counter() - begun_s)


def _train(pattern: str, served: servers.Served, batch_size: int, options: Options) -> tuple[float, float]:
    waits = []
    with _loader(pattern, served, batch_size) as loader:
        batches = (batch for _ in iter(int, 1) for batch in loader)
        for step in range(options.warm_up_steps + options.num_steps):
            begun_s = time.perf_counter()
            next(batches)
            if step >= options.warm_up_steps:
                waits.append(time.perf_counter() - begun_s)
            time.sleep(options.step_s)  # an accelerator's step takes no CPU
    total_s = sum(waits) + options.step_s * options.num_steps
    return sum(waits) / total_s, float(np.percentile(waits, 99))
