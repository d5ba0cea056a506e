"""DELI's experiment: what a trainer waits for small objects at 55 ms a request, by who reads ahead, and how.

One node of three, each with a third of the objects, dealt anew in every epoch; samples are read one after the other by
whoever does not read ahead, as in *Accelerating Deep Learning Training from Cloud Buckets* (arXiv 2108.06322): as many
steps in an epoch, of batches a 64th as large, the time of a step and the settings in proportion.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import obstore
from obstore.store import S3Store

import stoker
from stoker import ops
from stoker.formats.open import build_manifest
from stoker.formats.source import Source
from stoker_bench import rounds
from stoker_bench.rounds import Spread
from stoker_bench.storage import servers
from stoker_bench.storage.deli import Deli, Setting

PROFILE = "gcs,tail_ms=0"
NUM_NODES = 3
NUM_THREADS = 16
TARGETS = {"serial": 0.99, "16 at once": 0.80}
"""How much less than these Stoker waits."""

SETTINGS = {
    "cache alone": Setting(0, 0, 1 << 30),
    "f=16 c=8 t=0": Setting(16, 0, 8),
    "f=16 c=16 t=0": Setting(16, 0, 16),
    "f=16 c=48 t=0": Setting(16, 0, 48),
    "f=16 c=32 t=16": Setting(16, 16, 32),
    "f=16 c=32 t=24": Setting(16, 24, 32),
    "f=16 c=48 t=36": Setting(16, 36, 48),
}
TWO_EPOCHS = ("local disk", "cache alone", "stoker")
"""The others do the same in every epoch."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is read, in how many rounds of two epochs each."""

    num_objects: int = 552
    object_bytes: int = 3000
    batch_size: int = 8
    step_s: float = 0.1
    num_rounds: int = 5


class Way(Protocol):
    """One way to get the batches of a node; lives for one round."""

    def epoch(self, epoch: int) -> Iterable[Any]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Waited:
    """Of one epoch: seconds that the trainer waited, and the share of samples that were not there."""

    wait_s: float
    miss_rate: float


def run(folder: Path, options: Options, say: Callable[[str], None], settle: Callable[[], None]) -> dict[str, Any]:
    """Return waits and misses of each way, epoch by epoch, and how much less Stoker waits in the first."""
    bucket = _objects(folder / "small", options)
    found: dict[str, list[list[Waited]]] = {}
    with servers.chaos(bucket, PROFILE) as served:
        build_manifest(_source(served))  # a listing that was kept from another run is not true any more
        names = ["serial", "16 at once", "local disk", *SETTINGS, "stoker"]
        for number in range(options.num_rounds):
            for name in rounds.rotated(names, number):
                settle()
                found.setdefault(name, []).append(_epochs(name, served, bucket, options))
                waits = ", then ".join(f"{epoch.wait_s:.2f} s" for epoch in found[name][-1])
                say(f"round {number + 1}: {name}: waited {waits} an epoch")
    ours = [epochs[0].wait_s for epochs in found["stoker"]]
    return {
        "server": served.name,
        "waits_s": {
            name: [asdict(Spread.of([each.wait_s for each in epoch])) for epoch in zip(*many, strict=True)]
            for name, many in found.items()
        },
        "misses": {name: Spread.of([epochs[-1].miss_rate for epochs in many]).median for name, many in found.items()},
        "less": {
            name: asdict(Spread.of([1 - mine / many[0].wait_s for mine, many in zip(ours, found[name], strict=True)]))
            for name in TARGETS
        },
        "targets": TARGETS,
    }


def _epochs(name: str, served: servers.Served, bucket: Path, options: Options) -> list[Waited]:
    with ExitStack() as stack:
        way = _way(name, served, bucket, options, stack)
        found = []
        for epoch in range(2 if name in TWO_EPOCHS else 1):
            misses_before = getattr(way, "num_misses", 0)
            wait_s, num_samples = _train(way.epoch(epoch), options)
            found.append(Waited(wait_s, (getattr(way, "num_misses", 0) - misses_before) / num_samples))
        return found


def _train(batches: Iterable[Any], options: Options) -> tuple[float, int]:
    """Seconds waited in an epoch, and its samples."""
    wait_s, num_samples = 0.0, 0
    left = iter(batches)
    while True:
        begun_s = time.perf_counter()
        batch = next(left, None)
        wait_s += time.perf_counter() - begun_s
        if batch is None:
            return wait_s, num_samples
        num_samples += options.batch_size
        time.sleep(options.step_s)  # an accelerator's step takes no CPU


def _way(name: str, served: servers.Served, bucket: Path, options: Options, stack: ExitStack) -> Way:
    config: Any = served.options
    client: Any = {"allow_http": True}
    store = S3Store(servers.BUCKET.partition("://")[2], config=config, client_options=client)

    def get(index: int) -> bytes:
        return bytes(obstore.get(store, f"{index:05d}.bin").bytes())

    made: Way
    if name == "stoker":
        made = _Stoker(served, options)
    elif name in SETTINGS:
        made = _OfDeli(Deli(get, SETTINGS[name], NUM_THREADS), options)
    elif name == "local disk":
        made = _OnDemand(lambda index: (bucket / f"{index:05d}.bin").read_bytes(), 1, options)
    else:
        made = _OnDemand(get, 1 if name == "serial" else NUM_THREADS, options)
    stack.callback(made.close)
    return made


def _source(served: servers.Served) -> Source:
    return stoker.files(f"{servers.BUCKET}/", extensions=("bin",), storage_options=served.options)


def _share(epoch: int, options: Options) -> list[int]:
    """The objects of this node in an epoch, in the order they are read."""
    order = np.random.default_rng(epoch).permutation(options.num_objects)
    return [int(index) for index in order[: options.num_objects // NUM_NODES]]


class _OnDemand:
    """Reads a batch when it is asked for."""

    def __init__(self, read: Callable[[int], bytes], num_threads: int, options: Options) -> None:
        self._read, self._options = read, options
        self._threads = ThreadPoolExecutor(num_threads)

    def epoch(self, epoch: int) -> Iterator[list[bytes]]:
        share, size = _share(epoch, self._options), self._options.batch_size
        for start in range(0, len(share), size):
            yield list(self._threads.map(self._read, share[start : start + size]))

    def close(self) -> None:
        self._threads.shutdown()


class _OfDeli:
    def __init__(self, deli: Deli, options: Options) -> None:
        self._deli, self._options = deli, options

    @property
    def num_misses(self) -> int:
        return self._deli.num_misses

    def epoch(self, epoch: int) -> Iterator[list[bytes]]:
        return self._deli.epoch(_share(epoch, self._options), self._options.batch_size)

    def close(self) -> None:
        self._deli.close()


class _Stoker:
    """The loader as it is by default; its listing is made before."""

    def __init__(self, served: servers.Served, options: Options) -> None:
        pipeline = stoker.Pipeline(
            _source(served), [ops.Select("bin")], batch_size=options.batch_size, shuffle=True, drop_last=True
        )
        self._loader = stoker.DataLoader(pipeline, output="arrow", rank=0, world_size=NUM_NODES)

    def epoch(self, epoch: int) -> Iterator[Any]:
        self._loader.set_epoch(epoch)
        return iter(self._loader)

    def close(self) -> None:
        self._loader.close()


def _objects(bucket: Path, options: Options) -> Path:
    bucket.mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng(0)
    for number in range(options.num_objects):
        path = bucket / f"{number:05d}.bin"
        if not path.exists() or path.stat().st_size != options.object_bytes:
            path.write_bytes(chance.bytes(options.object_bytes))
    return bucket
