"""Cold reads: all chunks of a bucket, beside obstore alone reading the same ranges.

Twice: through the storage layer, which retries, verifies, counts, hedges and limits, in as many threads; and through
the whole loader, which besides verifies each row, takes the tars apart and makes batches, of the labels alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import obstore
from obstore.store import S3Store

import stoker
from stoker import ops
from stoker.engine.retries import RetryTally
from stoker.formats.open import open_dataset
from stoker.formats.stores import Access, Stores
from stoker.storage.store import ObjectRange
from stoker_bench import rounds
from stoker_bench.datasets import MadeShards
from stoker_bench.rounds import Spread
from stoker_bench.storage import servers

TARGET = 0.9
IN_FLIGHT = (4, 8, 16, 32)
BATCH_SIZE = 128


@dataclass(frozen=True, slots=True)
class Options:
    """How long: each measurement reads all shards ``num_passes`` times."""

    num_rounds: int = 7
    num_passes: int = 6


def run(made: MadeShards, options: Options, say: Callable[[str], None], settle: Callable[[], None]) -> dict[str, Any]:
    """Return MB/s of both, and the ratio, round by round."""
    with servers.fastest(made.folder) as served:
        pattern = f"{servers.BUCKET}/shard-{{000000..{len(made.shards) - 1:06d}}}.tar"
        source = stoker.tar(pattern, storage_options=served.options)
        dataset = open_dataset(source)
        ranges = [wanted for chunk in range(len(dataset.chunks.num_rows)) for wanted in dataset.ranges(chunk)]
        num_bytes = sum(wanted.num_bytes for wanted in ranges)
        alone = Reads(_obstore(served), ranges)
        stores = Stores(served.options, Access(RetryTally().open))
        layer = Reads(lambda wanted: stores.read_many([wanted], None)[0].nbytes, ranges)
        in_flight = max(IN_FLIGHT, key=lambda level: alone.mb_per_s(level, 2))
        say(f"obstore alone is fastest with {in_flight} in flight; {len(ranges)} ranges of {num_bytes / 1e6:.0f} MB")
        contenders: dict[str, Callable[[], float]] = {}
        with stoker.DataLoader(
            stoker.Pipeline(source, [ops.Select("cls")], batch_size=BATCH_SIZE, shuffle=True), output="arrow"
        ) as loader:
            batches = _endless(loader)
            contenders["storage layer"] = lambda: layer.mb_per_s(in_flight, options.num_passes)
            contenders["loader"] = lambda: _loader_mb_per_s(loader, batches, num_bytes, options.num_passes)
            contenders["obstore"] = lambda: alone.mb_per_s(in_flight, options.num_passes)
            for name, rate in contenders.items():
                say(f"warm-up: {name}: {rate():,.0f} MB/s")
            found = rounds.of(
                contenders, options.num_rounds, settle, lambda name, rate: say(f"{name}: {rate:,.0f} MB/s")
            )
    return {
        "server": served.name,
        "in_flight": in_flight,
        "mb_per_s": {name: asdict(Spread.of(rates)) for name, rates in found.items()},
        "ratios": {name: asdict(spread) for name, spread in rounds.against(found, "obstore").items()},
        "target": TARGET,
    }


class Reads:
    """Ranges in a shuffled order, in threads, each into memory that is let go at once."""

    def __init__(self, read: Callable[[ObjectRange], int], ranges: list[ObjectRange]) -> None:
        self._read, self._ranges = read, ranges

    def mb_per_s(self, in_flight: int, num_passes: int) -> float:
        """The rate with so many threads."""
        order = np.random.default_rng(0).permutation(len(self._ranges) * num_passes) % len(self._ranges)
        wanted = [self._ranges[index] for index in order.tolist()]
        with ThreadPoolExecutor(in_flight) as threads:
            begun_s = time.perf_counter()
            num_bytes = sum(threads.map(self._read, wanted))
            return num_bytes / (time.perf_counter() - begun_s) / 1e6


def _obstore(served: servers.Served) -> Callable[[ObjectRange], int]:
    options: Any = served.options
    client: Any = {"allow_http": True}
    store = S3Store(servers.BUCKET.partition("://")[2], config=options, client_options=client)

    def read(wanted: ObjectRange) -> int:
        path = wanted.url.removeprefix(servers.BUCKET + "/")
        return len(obstore.get_range(store, path, start=wanted.start, end=wanted.stop))

    return read


def _endless(loader: stoker.DataLoader) -> Iterator[Any]:
    while True:
        yield from loader


def _loader_mb_per_s(loader: stoker.DataLoader, batches: Iterator[Any], num_bytes: int, num_passes: int) -> float:
    """The rate at which whole epochs are taken; as much is read ahead at its end as at its beginning."""
    begun_s = time.perf_counter()
    for _ in range(num_passes * len(loader)):
        next(batches)
    return num_bytes * num_passes / (time.perf_counter() - begun_s) / 1e6
