"""A trainer with steps of fixed length over storage with a heavy tail: how long it waits."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import stoker
from stoker.formats.source import Source
from stoker_bench import rates, rounds
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
    """Return the share of the time that the trainer waited, and the 99th percentile of a step's wait.

    The same from the local disk in turn: what is waited there is the loader's own doing, and the machine's.
    """
    found: dict[str, list[_Waited]] = {"far": [], "disk": []}
    with servers.chaos(made.folder, PROFILE) as served:
        pattern = f"{servers.BUCKET}/shard-{{000000..{len(made.shards) - 1:06d}}}.tar"
        sources = {"far": stoker.tar(pattern, storage_options=served.options), "disk": stoker.tar(made.pattern)}
        capacity = statistics.median(_capacity(sources["far"], settle) for _ in range(3))
        batch_size = max(1, int(options.load * capacity * options.step_s))
        say(f"capacity {capacity:,.0f} images/s: batches of {batch_size} every {1000 * options.step_s:.0f} ms")
        for number in range(options.num_rounds):
            for name in rounds.rotated(list(sources), number):
                settle()
                waited = _train(sources[name], batch_size, options)
                found[name].append(waited)
                say(f"round {number + 1}, {name}: waited {100 * waited.share:.2f} %, p99 {1000 * waited.p99_s:.1f} ms")
    return {
        "server": served.name,
        "capacity": capacity,
        "batch_size": batch_size,
        "waited": {
            name: {
                "share": asdict(Spread.of([each.share for each in many])),
                "of_storage": asdict(Spread.of([each.of_storage for each in many])),
                "p99_s": asdict(Spread.of([each.p99_s for each in many])),
            }
            for name, many in found.items()
        },
        "wait_target": WAIT_TARGET,
        "p99_target_s": P99_TARGET_S,
    }


@dataclass(frozen=True, slots=True)
class _Waited:
    """Shares of the time: waited in all, and for chunks that were not read yet; 99 of 100 steps waited ``p99_s``."""

    share: float
    of_storage: float
    p99_s: float


def _loader(source: Source, batch_size: int) -> stoker.DataLoader:
    pipeline = stoker.Pipeline.preset("imagenet_train", source, batch_size=batch_size)
    loader: stoker.DataLoader = stoker.DataLoader(pipeline, output="numpy")
    return loader


def _capacity(source: Source, settle: Callable[[], None], num_batches: int = 60) -> float:
    """Images per second for a trainer that takes all it can get."""
    settle()
    with _loader(source, 32) as loader:
        batches = rates.endless(loader)
        for _ in range(num_batches // 2):
            next(batches)
        begun_s = time.perf_counter()
        for _ in range(num_batches):
            next(batches)
        return 32 * num_batches / (time.perf_counter() - begun_s)


def _train(source: Source, batch_size: int, options: Options) -> _Waited:
    waits = []
    with _loader(source, batch_size) as loader:
        batches = rates.endless(loader)
        read_before_s = 0.0
        for step in range(options.warm_up_steps + options.num_steps):
            if step == options.warm_up_steps:
                read_before_s = loader.stats()["wait_read_s"]
            begun_s = time.perf_counter()
            next(batches)
            if step >= options.warm_up_steps:
                waits.append(time.perf_counter() - begun_s)
            time.sleep(options.step_s)  # an accelerator's step takes no CPU
        read_s = loader.stats()["wait_read_s"] - read_before_s
    total_s = sum(waits) + options.step_s * options.num_steps
    return _Waited(sum(waits) / total_s, read_s / total_s, float(np.percentile(waits, 99)))
