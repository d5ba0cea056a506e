"""Measures the three rates of one pipeline: cold, warm, ceiling.

*Cold*: nothing was read before; the pages of local files are dropped first. *Warm*: the same once more, with the bytes
in this machine's page cache; the shards of an object store are copied here for it, if they are no more than 4 GiB.
*Ceiling*: batches made before are only turned into what the trainer gets, which no faster decoder could go beyond.

Where storage is to misbehave, it does so for the cold rate alone: for the others the bytes are here.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import stoker
from stoker.errors import SpecError
from stoker.formats.source import Files, Parquet, Source, Tar
from stoker_bench import local_copy, measure, page_cache
from stoker_bench.measure import Drive
from stoker_service import arguments

RateName = Literal["cold", "warm", "ceiling"]
Output = Literal["torch", "numpy"]
NUM_HELD_BATCHES = 4


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is measured: ``num_batches`` batches of a preset over ``source``, the same for each rate."""

    source: str
    preset: str = "imagenet_train"
    batch_size: int = 256
    num_batches: int = 40
    output: Output = "numpy"
    num_threads: int | None = None
    fast: bool = False
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    chaos: str | None = None

    def opened(self) -> Source:
        """Return the source with its options."""
        return arguments.source([self.source], self.storage_options)

    def misbehaving(self) -> Source:
        """Return the source as it behaves with ``chaos``, if that is given."""
        chaos = {"chaos": self.chaos} if self.chaos else {}
        return arguments.source([self.source], {**(self.storage_options or {}), **chaos})

    def pipeline(self, source: Source) -> stoker.Pipeline:
        """Return the preset over a source."""
        return stoker.Pipeline.preset(
            self.preset, source, batch_size=self.batch_size, fast=self.fast, on_error="replace"
        )


@dataclass(frozen=True, slots=True)
class Rate:
    """One measured rate. Megabytes are of 10^6 bytes; those per second are over the whole time, the first wait too."""

    name: RateName
    drive: Drive
    read_bytes: int
    made_bytes: int
    peak_memory_bytes: int
    limited_by: str

    @property
    def read_mb_per_s(self) -> float:
        return self.read_bytes / self.drive.total_s / 1e6

    @property
    def made_mb_per_s(self) -> float:
        return self.made_bytes / self.drive.total_s / 1e6


def measure_all(scenario: Scenario, progress: Callable[[RateName], None] | None = None) -> list[Rate]:
    """Measure cold, warm and ceiling, one after the other; ``progress`` is told what begins.

    Warm is left out where the source is neither here nor small enough to be copied. Raises SpecError if there are too
    few samples for one batch.
    """
    tell = progress or (lambda _name: None)
    source = scenario.opened()
    pipeline = scenario.pipeline(source)
    # Opened once beforehand, so that making the index is no part of any rate.
    with stoker.DataLoader(pipeline, output=scenario.output) as loader:
        if not len(loader):
            raise SpecError(f"{scenario.source} gives no batch of {scenario.batch_size}; take a smaller --batch-size")
    local = local_files(source)
    tell("cold")
    page_cache.forget(local)
    rates = [_measure_loader("cold", scenario, scenario.pipeline(scenario.misbehaving()))]
    tell("warm")
    rates += [_measure_loader("warm", scenario, pipeline)] if local else _measure_copy(scenario, source)
    tell("ceiling")
    return [*rates, _measure_ceiling(scenario, pipeline)]


def local_files(source: Source) -> list[Path]:
    """Return the files on this machine that a source reads; none for an object store."""
    from stoker.storage.patterns import expand
    from stoker.storage.urls import local_path, scheme_of

    match source:
        case Tar() | Parquet():
            urls = expand(source.patterns, source.storage_options or {})
            return [Path(local_path(url)) for url in urls if scheme_of(url) == "file"]
        case Files():
            if scheme_of(source.url) != "file":
                return []
            return [path for path in Path(local_path(source.url)).rglob("*") if path.is_file()]


def endless(loader: stoker.DataLoader) -> Iterator[Any]:
    """Yield batches epoch after epoch; ends if an epoch gives none."""
    while True:
        given = False
        for batch in loader:
            given = True
            yield batch
        if not given:
            return


def num_rows(batch: dict[str, Any]) -> int:
    """Return how many samples a batch holds."""
    return len(batch["__key__"])


def _measure_loader(name: RateName, scenario: Scenario, pipeline: stoker.Pipeline) -> Rate:
    measure.reset_peak_memory()
    loaders: list[stoker.DataLoader] = []

    def open_batches() -> Iterator[Any]:
        loaders.append(stoker.DataLoader(pipeline, output=scenario.output, num_threads=scenario.num_threads))
        return endless(loaders[0])

    try:
        driven = measure.drive(open_batches, scenario.num_batches, num_rows)
        stats = loaders[0].stats()
    finally:
        for loader in loaders:
            loader.close()
    return Rate(
        name, driven, stats["bytes_read"], stats["bytes_made"], measure.peak_memory_bytes(), stats["limited_by"]
    )


def _measure_copy(scenario: Scenario, source: Source) -> list[Rate]:
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder:
        copied = local_copy.copy(source, Path(folder))
        return [] if copied is None else [_measure_loader("warm", scenario, scenario.pipeline(copied))]


def _measure_ceiling(scenario: Scenario, pipeline: stoker.Pipeline) -> Rate:
    from stoker.batch import convert

    with stoker.DataLoader(pipeline, output="arrow", num_threads=scenario.num_threads) as loader:
        made = list(itertools.islice(endless(loader), NUM_HELD_BATCHES))
    to_output = convert.to_torch if scenario.output == "torch" else convert.to_numpy
    measure.reset_peak_memory()
    again = itertools.cycle(made)
    driven = measure.drive(lambda: map(to_output, again), scenario.num_batches, num_rows)
    made_bytes = sum(batch.nbytes for batch in itertools.islice(itertools.cycle(made), driven.num_batches))
    return Rate("ceiling", driven, 0, made_bytes, measure.peak_memory_bytes(), "nothing")
