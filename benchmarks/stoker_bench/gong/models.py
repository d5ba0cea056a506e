"""What preprocessing on the training GPU does to the models of the paper: images per second, and a step's time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import stoker
from stoker.formats.source import Source
from stoker_bench.gpu import beside, placements, taking
from stoker_bench.gpu.beside import Open, Steps
from stoker_bench.gpu.placements import Placement

if TYPE_CHECKING:
    from stoker_bench.gpu.training import Step


@dataclass(frozen=True, slots=True)
class Options:
    """Which models of torchvision's, and for how long."""

    names: tuple[str, ...] = ("resnet18", "resnet50")
    steps: Steps = field(default_factory=Steps)


def run(
    pattern: str,
    raw: Path,
    options: Options,
    device: str | None,
    say: Callable[[str], None],
    settle: Callable[[], None],
) -> dict[str, Any]:
    """Return, for each model, a step alone and beside each of the four pipelines; ``missing`` without a GPU."""
    missing = placements.missing_gpu(device)
    if missing is not None or device is None:
        return {"missing": missing}
    from stoker_bench.gpu.training import Trainer, model

    sources: dict[str, Source] = {"raw": stoker.files(raw), "shards": stoker.tar(pattern)}
    loaders: dict[str, Open] = {
        f"{layout}/{placement.name}": functools.partial(_loader, placement, source, options.steps.batch_size, device)
        for layout, source in sources.items()
        for placement in (placements.cpu(), placements.mixed(device))
        if placement.missing is None
    }
    found: dict[str, Any] = {}
    for name in options.names:
        try:
            trainer = Trainer(model(name), device)
        except ValueError as error:
            found[name] = {"failed": str(error)}
        else:
            found[name] = beside.measure(trainer, loaders, options.steps, functools.partial(_tell, say, name), settle)
    return found


def _loader(placement: Placement, source: Source, batch_size: int, device: str) -> stoker.DataLoader:
    return taking.loader_of(placement, taking.pipeline_of(placement, source, batch_size), device)


def _tell(say: Callable[[str], None], name: str, way: str, step: Step) -> None:
    say(f"{name}, {way}: {1000 * step.step_s:.1f} ms, {step.images_per_s:,.0f} images/s")
