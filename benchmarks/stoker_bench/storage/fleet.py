"""A fleet of workers with caches: how often a bucket is read in three epochs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import stoker
from stoker import ops
from stoker.formats.open import open_dataset
from stoker_bench.datasets import MadeShards
from stoker_bench.service_processes import Service
from stoker_bench.storage import servers

TARGET = 1.0
BEAT_S = 1.0


@dataclass(frozen=True, slots=True)
class Options:
    """Workers on this machine, each with a cache in memory that holds its share and a half."""

    num_workers: int = 4
    num_epochs: int = 3
    num_rounds: int = 5


def run(made: MadeShards, options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    """Return the bytes that the bucket sent for chunks, as a multiple of the data set, for each round."""
    multiples = []
    with servers.chaos(made.folder, "none") as served:
        pattern = f"{servers.BUCKET}/shard-{{000000..{len(made.shards) - 1:06d}}}.tar"
        source = stoker.tar(pattern, storage_options=served.options)
        dataset = open_dataset(source)  # makes the index, so that no round has to scan
        num_bytes = int(dataset.chunks.size_bytes.sum())
        pipeline = stoker.Pipeline(source, [ops.Select("cls")], batch_size=64, shuffle=True)
        cache_bytes = 3 * num_bytes // (2 * options.num_workers)
        for number in range(options.num_rounds):
            cache = f"--cache-ram-bytes={cache_bytes}"
            with Service(options.num_workers, 1, beat_s=BEAT_S, worker_options=(cache,)) as service:
                time.sleep(4 * BEAT_S)  # until all know of all; before, each would read what it is asked for
                served.reset()
                with stoker.DataLoader(pipeline, service=service.url, output="arrow") as loader:
                    num_rows = sum(batch.num_rows for _ in range(options.num_epochs) for batch in loader)
                assert num_rows == options.num_epochs * made.num_rows
            shards = [line for line in served.counts()["lines"] if line["path"].endswith(".tar")]
            multiples.append(sum(line["body_bytes"] for line in shards if line["method"] == "GET") / num_bytes)
            say(f"fleet, round {number + 1}: {multiples[-1]:.3f} x the data set")
    return {
        "num_workers": options.num_workers,
        "num_epochs": options.num_epochs,
        "multiples": multiples,
        "target": TARGET,
    }
