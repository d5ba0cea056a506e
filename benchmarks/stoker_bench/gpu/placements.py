"""Where the pictures of a benchmark are decoded and augmented."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

import stoker
from stoker.backends.registry import has_dali

NO_GPU = "no GPU here: torch.cuda.is_available() is False"
NO_DALI = "no DALI here: nvidia.dali cannot be imported"
NO_TORCH = "no PyTorch here: torch cannot be imported"


@dataclass(frozen=True, slots=True)
class Placement:
    """A back-end with what is said of it. ``missing`` says why it cannot be measured on this machine.

    ``normalize``: the pipeline ends in float32 NCHW, made where the rest is made; else in uint8 NHWC.
    """

    name: str
    title: str
    backend: stoker.Backend
    missing: str | None = None
    normalize: bool = False


def missing_torch() -> str | None:
    """Why no torch tensors can be made here."""
    return None if importlib.util.find_spec("torch") else NO_TORCH


def missing_gpu(device: str | None) -> str | None:
    """Why nothing can be made on a GPU here; None if ``device`` is one that can be used."""
    if missing_torch() is not None:
        return NO_TORCH
    import torch

    if not torch.cuda.is_available():
        return NO_GPU
    return None if device else "no GPU was asked for: give --device cuda:0"


def cpu() -> Placement:
    """Threads over libjpeg-turbo and torch's resize."""
    return Placement("cpu", "cpu", stoker.Backend("cpu"))


def dali_on_cpu() -> Placement:
    """DALI's operators on the CPU: the stand-in for its GPU ones where there is no GPU."""
    return Placement("dali-cpu", "DALI, on the CPU", stoker.Backend("dali"), _missing_dali())


def mixed(device: str | None) -> Placement:
    """JPEG decoding begun on the CPU and ended on the GPU, all else on the GPU."""
    return _on_gpu("mixed", "DALI, mixed: decode on CPU and GPU, the rest on the GPU", device)


def all_of(device: str | None) -> list[Placement]:
    """From all on the CPU to all on the GPU, normalised floats made there too."""
    after = {"RandomResizedCrop": "gpu", "RandomHorizontalFlip": "gpu"}
    return [
        cpu(),
        dali_on_cpu(),
        _on_gpu(
            "split", "DALI: decode on the CPU, resize and flip on the GPU", device, {"DecodeImage": "cpu", **after}
        ),
        mixed(device),
        _on_gpu("all-gpu", "DALI, all on the GPU, floats too", device, normalize=True),
    ]


def _on_gpu(
    name: str, title: str, device: str | None, placement: dict[str, str] | None = None, *, normalize: bool = False
) -> Placement:
    missing = missing_gpu(device) or _missing_dali()
    if missing is not None:
        return Placement(name, title, stoker.Backend("dali"), missing, normalize)
    chosen = stoker.Backend("dali", device=str(device), placement=placement or "mixed")  # type: ignore[arg-type]
    return Placement(name, title, chosen, None, normalize)


def _missing_dali() -> str | None:
    return None if has_dali() else NO_DALI
