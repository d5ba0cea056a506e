"""The parts that are measured in this process, each of them alone in its own."""

from __future__ import annotations

import contextlib
import functools
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import stoker
from stoker.dataloader import DEFAULT_PREFETCH_BYTES
from stoker_bench import datasets, machine, quiet, rounds, service_data
from stoker_bench.datasets import PhotoShards
from stoker_bench.gpu import hardware, placements, taking, turns
from stoker_bench.gpu.beside import Open, Steps
from stoker_bench.gpu.placements import Placement
from stoker_bench.gpu.taking import Taken
from stoker_bench.peers.ours import ROW_BYTES
from stoker_bench.service_processes import Process
from stoker_service.options import DEFAULT_MEMORY_BYTES

_SHARE = 0.7
"""Of a part's time, until which a round may begin."""


@dataclass(frozen=True, slots=True)
class Options:
    """How much a part measures, in ``budget_s`` at most."""

    device: str | None
    budget_s: float
    is_short: bool = False
    data: PhotoShards = field(default_factory=PhotoShards)
    num_repeats: int = 8
    batch_size: int = 256
    warm_up: int = 6
    num_batches: int = 24
    num_rounds: int = 5
    worker_bytes: int = DEFAULT_MEMORY_BYTES
    steps: Steps = field(default_factory=Steps)

    @classmethod
    def short(cls, device: str | None, budget_s: float) -> Options:
        """Shows that all of it works; its figures mean nothing."""
        steps = Steps(2, 32, num_rounds=1, warm_up=1, num_steps=1)
        return cls(device, budget_s, True, PhotoShards(2, 48), 2, 8, 1, 4, 1, 4 << 20, steps)

    @property
    def gpu(self) -> str | None:
        """The GPU, if it can be used."""
        return self.device if placements.missing_gpu(self.device) is None else None

    @property
    def until_s(self) -> float:
        return time.monotonic() + _SHARE * self.budget_s

    def pattern(self) -> str:
        """Shards with an epoch of enough batches; made once."""
        folder = Path(tempfile.gettempdir()) / f"stoker-bench-{self.data.num_shards}x{self.data.rows_per_shard}"
        return service_data.repeated(datasets.make(self.data, folder), self.num_repeats)

    def settle(self) -> None:
        """Return when the machine is idle; at once if nothing is to be measured."""
        if not self.is_short:
            quiet.wait(5.0)


def measure_machine(options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    """What it is measured on."""
    say("looking at the machine")
    return {**machine.describe(), "gpu": hardware.describe(options.device)}


def measure_rates(options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    """Images per second in the trainer, with what is copied to the GPU and what memory it takes there."""
    until_s, pattern = options.until_s, options.pattern()
    every = placements.all_of(options.device)

    def measure(placement: Placement) -> Taken:
        used_bytes = _used_bytes(options)
        with _loader(placement, pattern, options.batch_size, options.gpu) as loader:
            return _beyond(used_bytes, taking.taken(loader, options.warm_up, options.num_batches, options.gpu))

    ways = {each.name: functools.partial(measure, each) for each in every if each.missing is None}
    found, failed = turns.in_turn(ways, options.num_rounds, _teller(say), options.settle, until_s)
    missing = {each.name: each.missing for each in every if each.missing is not None}
    return _rated({each.name: each.title for each in every}, found, missing, failed, options)


def measure_service(options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    """Images per second through one worker on this host: on the CPU, with DALI there, and with the GPU."""
    until_s, pattern = options.until_s, options.pattern()
    held_bytes = options.worker_bytes + DEFAULT_PREFETCH_BYTES
    warm_up = options.warm_up + (0 if options.is_short else math.ceil(held_bytes / (options.batch_size * ROW_BYTES)))
    missing = placements.missing_gpu(options.device) or placements.dali_on_cpu().missing
    workers = {
        "worker-cpu": ("a worker, cpu", ["--backend=cpu"], None),
        "worker-dali-cpu": ("a worker, DALI on the CPU", ["--backend=dali"], placements.dali_on_cpu().missing),
        "worker-gpu": ("a worker with the GPU", ["--backend=dali", f"--device={options.device}"], missing),
    }

    def measure(arguments: list[str]) -> Taken:
        used_bytes = _used_bytes(options)
        with up(arguments, options) as url:
            pipeline = taking.pipeline_of(placements.cpu(), pattern, options.batch_size)
            with stoker.DataLoader(pipeline, output="torch", service=url, device=options.gpu) as loader:
                return _beyond(used_bytes, taking.taken(loader, warm_up, options.num_batches, options.gpu))

    ways = {name: functools.partial(measure, given) for name, (_, given, why) in workers.items() if why is None}
    found, failed = turns.in_turn(ways, options.num_rounds, _teller(say), options.settle, until_s)
    left_out = {name: why for name, (_, _, why) in workers.items() if why is not None}
    return _rated({name: title for name, (title, _, _) in workers.items()}, found, left_out, failed, options)


def measure_step(options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    """A ResNet-50's step alone, beside each kind of loader, and beside a worker on the same GPU."""
    missing = placements.missing_gpu(options.device)
    if missing is not None and not options.is_short:
        return {"missing": missing}
    import torch

    from stoker_bench.gpu import beside
    from stoker_bench.gpu.training import Trainer, model

    if options.gpu is None:
        torch.set_num_threads(1)  # on a busy machine torch's threads wait for one another for longer than they work
    until_s, pattern, batch_size = options.until_s, options.pattern(), options.steps.batch_size
    every = [each for each in placements.all_of(options.device) if each.missing is None]
    loaders: dict[str, Open] = {
        each.name: functools.partial(_loader, each, pattern, batch_size, options.gpu) for each in every
    }
    titles = {beside.ALONE: "nobody: the same batch again", **{each.name: each.title for each in every}}
    trainer = Trainer(model("resnet50"), options.gpu or "cpu")
    with contextlib.ExitStack() as stack:
        if options.gpu is not None:
            url = stack.enter_context(up(["--backend=dali", f"--device={options.gpu}"], options))
            pipeline = taking.pipeline_of(placements.cpu(), pattern, batch_size)
            loaders["worker-gpu"] = functools.partial(
                stoker.DataLoader, pipeline, output="torch", service=url, device=options.gpu
            )
            titles["worker-gpu"] = "a worker with the same GPU"
        found = beside.measure(
            trainer,
            loaders,
            options.steps,
            lambda name, step: say(f"{name}: step {1000 * step.step_s:.1f} ms, {step.images_per_s:,.0f} images/s"),
            options.settle,
            until_s,
        )
    failed = {way: figures["failed"] for way, figures in found.items() if "failed" in figures}
    return {"titles": titles, "steps": found, "options": asdict(options.steps), **_why(failed)}


@contextlib.contextmanager
def up(arguments: list[str], options: Options) -> Iterator[str]:
    """``stoker up`` with one worker, until the end of the block; its address. Raises RuntimeError if it says none."""
    bounds = [f"--threads={machine.num_cores()}", f"--memory-bytes={options.worker_bytes}"]
    process = Process("stoker_service", ["up", "--workers=1", "--port=0", *bounds, *arguments])
    try:
        yield process.first_line().split()[-1]
    finally:
        process.close()


def _loader(placement: Placement, pattern: str, batch_size: int, device: str | None) -> stoker.DataLoader:
    return taking.loader_of(placement, taking.pipeline_of(placement, pattern, batch_size), device)


def _teller(say: Callable[[str], None]) -> Callable[[str, Taken], None]:
    return lambda name, taken: say(f"{name}: {taken.images_per_s:,.0f} images/s")


def _used_bytes(options: Options) -> int | None:
    """What is used of the GPU's memory before a measurement, without what those before it left in pools."""
    hardware.trim()
    return hardware.used_bytes(options.gpu)


def _beyond(used_bytes: int | None, taken: Taken) -> Taken:
    """The same with the memory beyond this."""
    if used_bytes is None or taken.gpu_bytes is None:
        return taken
    return replace(taken, gpu_bytes=max(0, taken.gpu_bytes - used_bytes))


def _rated(
    titles: dict[str, str],
    found: dict[str, list[Taken]],
    missing: dict[str, str],
    failed: dict[str, str],
    options: Options,
) -> dict[str, Any]:
    own = {name: [each.images_per_s for each in many] for name, many in found.items()}
    base = next(iter(titles))
    ratios = rounds.against(own, base) if base in own else {}
    return {
        "titles": titles,
        "taken": {name: taking.spreads(many) for name, many in found.items()},
        "ratios": {name: asdict(ratio) for name, ratio in ratios.items()},
        "missing": missing | failed,
        "num_rounds": max(map(len, found.values()), default=0),
        "num_batches": options.num_batches,
        "batch_size": options.batch_size,
        **_why(failed),
    }


def _why(failed: dict[str, str]) -> dict[str, str]:
    """What the part says of itself if some of its ways failed."""
    return {"failed": "; ".join(f"{name}: {why}" for name, why in failed.items())} if failed else {}


MEASURED: dict[str, Callable[[Options, Callable[[str], None]], dict[str, Any]]] = {
    "machine": measure_machine,
    "rates": measure_rates,
    "service": measure_service,
    "step": measure_step,
}
