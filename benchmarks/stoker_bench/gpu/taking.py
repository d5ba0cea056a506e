"""What a trainer gets from a loader in a short while, with what it cost."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import stoker
from stoker.formats.source import Source
from stoker_bench import rates, rounds
from stoker_bench.gpu import hardware
from stoker_bench.gpu.placements import Placement


@dataclass(frozen=True, slots=True)
class Taken:
    """A rate with what was copied to the device for a batch, and the GPU's memory that it took; None if not counted."""

    images_per_s: float
    copies_per_batch: float | None = None
    copied_bytes_per_batch: float | None = None
    gpu_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Waited:
    """A trainer with steps of fixed length: the share of the time that it waited, and what 99 of 100 steps did."""

    share: float
    p99_s: float


@dataclass(frozen=True, slots=True)
class Read:
    """What was read from the storage for one image."""

    bytes_per_image: float
    requests_per_image: float


def pipeline_of(placement: Placement, source: Source | str, batch_size: int) -> stoker.Pipeline:
    """The preset ``imagenet_train``, the same for every placement but for what comes after it."""
    return stoker.Pipeline.preset(
        "imagenet_train", source, batch_size=batch_size, normalize=placement.normalize, on_error="replace"
    )


def loader_of(placement: Placement, pipeline: stoker.Pipeline, device: str | None) -> stoker.DataLoader:
    """A loader whose batches are torch tensors, on the GPU if there is one."""
    loader: stoker.DataLoader = stoker.DataLoader(
        pipeline, output="torch", backend=placement.backend, device=device, prefetch_bytes=64 << 20
    )
    return loader


def taken(loader: stoker.DataLoader, warm_up: int, num_batches: int, device: str | None) -> Taken:
    """Take batches as fast as they come; those of the warm-up are thrown away first.

    ``gpu_bytes`` is what all processes have of the GPU's memory at the end.
    """
    batches = rates.endless(loader)
    for _ in range(warm_up):
        next(batches)
    finish()
    before, begun_s = copied(loader.stats()), time.perf_counter()
    num_images = sum(rates.num_rows(next(batches)) for _ in range(num_batches))
    finish()
    total_s = time.perf_counter() - begun_s
    after = copied(loader.stats())
    used_bytes = hardware.used_bytes(device)
    if before is None or after is None:
        return Taken(num_images / total_s, gpu_bytes=used_bytes)
    copies, num_bytes = ((late - early) / num_batches for early, late in zip(before, after, strict=True))
    return Taken(num_images / total_s, copies, num_bytes, used_bytes)


def waited(loader: stoker.DataLoader, step_s: float, warm_up: int, num_steps: int) -> Waited:
    """Take a batch every ``step_s`` at most."""
    waits_s: list[float] = []
    batches = rates.endless(loader)
    for step in range(warm_up + num_steps):
        begun_s = time.perf_counter()
        next(batches)
        if step >= warm_up:
            waits_s.append(time.perf_counter() - begun_s)
        time.sleep(step_s)  # an accelerator's step takes no CPU
    return Waited(sum(waits_s) / (sum(waits_s) + num_steps * step_s), float(np.percentile(waits_s, 99)))


def read(loader: stoker.DataLoader, num_epochs: int) -> Read:
    """Count over whole epochs after a first one: at the end of each, as much is read ahead of the next."""
    for _ in loader:
        pass
    before, num_images = _read(loader), 0
    for _ in range(num_epochs):
        num_images += sum(map(rates.num_rows, loader))
    num_bytes, num_requests = (late - early for early, late in zip(before, _read(loader), strict=True))
    return Read(num_bytes / num_images, num_requests / num_images)


def spreads(many: list[Any]) -> dict[str, dict[str, float]]:
    """The median, smallest and largest of each figure of these values of one dataclass; none of what is None."""
    values = {name: [getattr(one, name) for one in many] for name in asdict(many[0])}
    return {name: asdict(rounds.Spread.of(own)) for name, own in values.items() if None not in own}


def finish() -> None:
    """Wait until the GPU has done what it was given, if there is one."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def copied(stats: dict[str, Any]) -> tuple[float, float] | None:
    """Copies from the host to the device so far, and their bytes; None where the loader has no device."""
    if "device_copies" not in stats:
        return None
    return stats["device_copies"], stats["device_bytes"]


def _read(loader: stoker.DataLoader) -> tuple[int, int]:
    storage = loader.stats()["storage"]
    return storage["bytes"], storage["requests"]
