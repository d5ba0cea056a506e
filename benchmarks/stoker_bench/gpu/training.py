"""A model that trains beside a loader: how long its step takes, alone and while the GPU does the loader's work too."""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

_MEAN = (123.675, 116.28, 103.53)  # ImageNet's, of bytes
_STD = (58.395, 57.12, 57.375)


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of a step on the GPU itself, from its first kernel to its last; and with all waiting, images a second."""

    step_s: float
    images_per_s: float


def model(name: str) -> Any:
    """torchvision's model of that name, or our own ``resnet50``. Raises ValueError if it is in neither."""
    if importlib.util.find_spec("torchvision"):
        models = importlib.import_module("torchvision.models")
        return getattr(models, name)(weights=None)
    if name == "resnet50":
        from stoker_bench.gpu.resnet import resnet50

        return resnet50()
    raise ValueError(f"{name} needs torchvision, which is not here; of our own there is resnet50")


class Trainer:
    """One model with SGD in bfloat16, channels last; pictures come as uint8 NHWC, or as normalised float32 NCHW."""

    def __init__(self, made: Any, device: str) -> None:
        self._device = torch.device(device)
        self._is_cuda = self._device.type == "cuda"
        self._model = made.to(self._device, memory_format=torch.channels_last).train()
        self._optimizer = torch.optim.SGD(self._model.parameters(), 0.01, momentum=0.9)
        self._mean, self._std = (torch.tensor(values, device=self._device).view(1, 3, 1, 1) for values in (_MEAN, _STD))
        torch.backends.cudnn.benchmark = True

    def batch(self, batch_size: int, size: int) -> dict[str, torch.Tensor]:
        """Noise in the form of a batch, on the device."""
        image = torch.randint(256, (batch_size, size, size, 3), dtype=torch.uint8, device=self._device)
        return {"image": image, "cls": torch.zeros(batch_size, dtype=torch.int64, device=self._device)}

    def measure(self, batches: Iterator[Mapping[str, Any]], warm_up: int, num_steps: int) -> Step:
        """Train on these batches, those of the warm-up outside the clock."""
        for _ in range(warm_up):
            self._step(next(batches))
        self._wait()
        marks: list[tuple[Any, Any]] = []
        num_images = 0
        begun_s = time.perf_counter()
        for _ in range(num_steps):
            batch = next(batches)
            num_images += len(batch["image"])
            begun = self._mark()
            self._step(batch)
            marks.append((begun, self._mark()))
            if self._is_cuda and len(marks) > 1:
                marks[-2][1].synchronize()  # as a trainer that looks at its loss one step later
        self._wait()
        total_s = time.perf_counter() - begun_s
        return Step(sum(self._between(*pair) for pair in marks) / num_steps, num_images / total_s)

    def _step(self, batch: Mapping[str, Any]) -> None:
        image = batch["image"].to(self._device, non_blocking=True)
        label = batch["cls"].to(self._device, non_blocking=True)
        if image.dtype == torch.uint8:
            image = (image.permute(0, 3, 1, 2) - self._mean) / self._std
        image = image.contiguous(memory_format=torch.channels_last)
        with torch.autocast(self._device.type, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(self._model(image), label)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]  # torch gives it no types
        self._optimizer.step()

    def _mark(self) -> Any:
        if not self._is_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch gives it no types
        event.record()
        return event

    def _between(self, begun: Any, ended: Any) -> float:
        return float(begun.elapsed_time(ended)) / 1000 if self._is_cuda else float(ended - begun)

    def _wait(self) -> None:
        if self._is_cuda:
            torch.cuda.synchronize(self._device)
