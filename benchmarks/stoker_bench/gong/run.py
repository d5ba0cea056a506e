"""Measures raw files and shards, on the CPU, on CPU and GPU, from a disk and from a store with latency."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import stoker
from stoker.formats.source import Source
from stoker_bench import compat_pictures, machine, page_cache, quiet
from stoker_bench.datasets import MadeShards, PhotoShards
from stoker_bench.gong import models
from stoker_bench.gpu import placements, taking, turns
from stoker_bench.gpu.beside import Steps
from stoker_bench.gpu.placements import Placement
from stoker_bench.gpu.taking import Taken, Waited
from stoker_bench.rounds import Spread
from stoker_bench.storage import servers

T = TypeVar("T")

STORAGES = ("cold", "warm", "store")
LAYOUTS = ("raw", "shards")
BASE = "raw/cpu"


@dataclass(frozen=True, slots=True)
class Options:
    """What is measured, and how long. Each measurement opens a loader anew and stays inside its first epoch.

    ``profile`` is that of the store, see ``stoker/storage/chaos``. The trainer takes ``load`` of what the CPU makes
    of shards from the page cache, in batches of one for each step of ``step_s``.
    """

    data: PhotoShards = field(default_factory=lambda: PhotoShards(8, 512))
    batch_size: int = 64
    num_rounds: int = 5
    warm_up_batches: int = 4
    num_batches: int = 24
    num_read_epochs: int = 2
    profile: str = "gcs"
    step_s: float = 0.05
    load: float = 0.8
    warm_up_steps: int = 10
    num_steps: int = 50
    models: models.Options = field(default_factory=models.Options)


SHORT = Options(
    data=PhotoShards(2, 48),
    batch_size=8,
    num_rounds=1,
    warm_up_batches=1,
    num_batches=4,
    profile="gcs,latency_ms=5,tail_ms=50",
    step_s=0.005,
    warm_up_steps=2,
    num_steps=6,
    models=models.Options(steps=Steps(16, num_rounds=1, warm_up=2, num_steps=3)),
)
"""Shows that all of it works; its figures mean nothing."""


@dataclass(frozen=True, slots=True)
class Column:
    """One pipeline over one storage."""

    storage: str
    layout: str
    placement: Placement
    source: Source
    cold: tuple[Path, ...] = ()
    """Files whose pages are dropped before each measurement."""

    @property
    def name(self) -> str:
        return f"{self.storage}/{self.layout}/{self.placement.name}"


def run(
    made: MadeShards,
    options: Options,
    device: str | None,
    say: Callable[[str], None],
    settle: Callable[[], None] = quiet.wait,
) -> dict[str, Any]:
    """Return all figures as JSON values. ``settle`` returns when the machine is idle."""
    raw = compat_pictures.files_of(made)
    with _columns(made, raw, options, device) as columns:
        here = [column for column in columns if column.placement.missing is None]
        for column in here:
            _index(column)
        reads = {
            f"{column.storage}/{column.layout}": _read(column, options, say)
            for column in here
            if column.placement.name == "cpu" and not column.cold
        }
        found = _rates(here, options, device, say, settle)
        capacity = Spread.of([each.images_per_s for each in found["warm/shards/cpu"]]).median
        batch_size = max(1, int(options.load * capacity * options.step_s))
        say(f"a trainer takes {batch_size} images every {1000 * options.step_s:.0f} ms")
        waits = _waits(here, batch_size, options, device, say, settle)
    return {
        "machine": machine.describe(),
        "device": placements.missing_gpu(device) or device,
        "options": asdict(options),
        "images": {"rows": made.num_rows, "shard_bytes": made.size_bytes, "raw_bytes": _size(raw)},
        "trainer": {"batch_size": batch_size, "step_s": options.step_s, "load": options.load},
        "reads": reads,
        "columns": [_figures(column, found, waits) for column in columns],
        "models": models.run(made.pattern, raw, options.models, device, say, settle),
    }


@contextlib.contextmanager
def _columns(made: MadeShards, raw: Path, options: Options, device: str | None) -> Iterator[list[Column]]:
    """Every storage × layout × placement, until the end of the block."""
    found: list[Column] = []
    with servers.chaos(made.folder, options.profile) as served:
        far: dict[str, Source] = {
            "raw": stoker.files(f"{servers.BUCKET}/{raw.name}", storage_options=served.options),
            "shards": stoker.tar(f"{servers.BUCKET}/{Path(made.pattern).name}", storage_options=served.options),
        }
        near: dict[str, Source] = {"raw": stoker.files(raw), "shards": stoker.tar(made.pattern)}
        paths = {"raw": tuple(sorted(raw.glob("*/*.jpg"))), "shards": made.shards}
        for layout in LAYOUTS:
            for placement in (placements.cpu(), placements.dali_on_cpu(), placements.mixed(device)):
                found += [
                    Column("cold", layout, placement, near[layout], paths[layout]),
                    Column("warm", layout, placement, near[layout]),
                    Column("store", layout, placement, far[layout]),
                ]
        yield sorted(found, key=lambda column: STORAGES.index(column.storage))


def _index(column: Column) -> None:
    """Have the index made, which is no part of any figure."""
    pipeline = taking.pipeline_of(column.placement, column.source, 1)
    taking.loader_of(column.placement, pipeline, None).close()


def _read(column: Column, options: Options, say: Callable[[str], None]) -> dict[str, float]:
    """What is read for an image, which does not depend on who makes it."""
    with _loader(column, options.batch_size, None) as loader:
        found = taking.read(loader, options.num_read_epochs)
    say(
        f"{column.storage}/{column.layout}: {found.bytes_per_image:,.0f} bytes, {found.requests_per_image:.2f} requests"
    )
    return asdict(found)


def _rates(
    columns: Sequence[Column],
    options: Options,
    device: str | None,
    say: Callable[[str], None],
    settle: Callable[[], None],
) -> dict[str, list[Taken]]:
    def measure(column: Column) -> Taken:
        page_cache.forget(column.cold)
        with _loader(column, options.batch_size, device) as loader:
            num_batches = _inside_epoch(loader, options.warm_up_batches, options.num_batches)
            return taking.taken(loader, options.warm_up_batches, num_batches, None)

    def tell(name: str, taken: Taken) -> None:
        say(f"{name}: {taken.images_per_s:,.0f} images/s")

    return _measured(columns, measure, options.num_rounds, tell, settle)


def _waits(
    columns: Sequence[Column],
    batch_size: int,
    options: Options,
    device: str | None,
    say: Callable[[str], None],
    settle: Callable[[], None],
) -> dict[str, list[Waited]]:
    def measure(column: Column) -> Waited:
        page_cache.forget(column.cold)
        with _loader(column, batch_size, device) as loader:
            num_steps = _inside_epoch(loader, options.warm_up_steps, options.num_steps)
            return taking.waited(loader, options.step_s, options.warm_up_steps, num_steps)

    def tell(name: str, waited: Waited) -> None:
        say(f"{name}: waited {100 * waited.share:.1f} %, p99 {1000 * waited.p99_s:.1f} ms")

    return _measured(columns, measure, options.num_rounds, tell, settle)


def _measured(
    columns: Sequence[Column],
    measure: Callable[[Column], T],
    num_rounds: int,
    tell: Callable[[str, T], None],
    settle: Callable[[], None],
) -> dict[str, list[T]]:
    """Raises RuntimeError if one of them cannot be measured: a table with holes would not say what it seems to."""
    ways = {column.name: functools.partial(measure, column) for column in columns}
    found, failed = turns.in_turn(ways, num_rounds, tell, settle)
    if failed:
        raise RuntimeError("; ".join(f"{name}: {why}" for name, why in failed.items()))
    return found


def _loader(column: Column, batch_size: int, device: str | None) -> stoker.DataLoader:
    on_device = device if placements.missing_gpu(device) is None else None
    return taking.loader_of(
        column.placement, taking.pipeline_of(column.placement, column.source, batch_size), on_device
    )


def _inside_epoch(loader: stoker.DataLoader, warm_up: int, wanted: int) -> int:
    """As many batches as are wanted, or as the first epoch has left after the warm-up: a second one is not cold."""
    return max(1, min(wanted, len(loader) - warm_up))


def _figures(column: Column, found: dict[str, list[Taken]], waits: dict[str, list[Waited]]) -> dict[str, Any]:
    about = {"storage": column.storage, "layout": column.layout, "placement": column.placement.name}
    if column.placement.missing is not None:
        return {**about, "missing": column.placement.missing}
    own, base = ([each.images_per_s for each in found[name]] for name in (column.name, f"{column.storage}/{BASE}"))
    ratio = Spread.of([one / other for one, other in zip(own, base, strict=True)])
    return {**about, "taken": taking.spreads(found[column.name]), "ratio": asdict(ratio), "rounds": own} | {
        "waited": taking.spreads(waits[column.name])
    }


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*/*.jpg"))
