"""What GPU there is, and how much of its memory is used."""

from __future__ import annotations

import contextlib
import importlib
import shutil
import subprocess
from importlib import metadata
from typing import Any

from stoker_bench.gpu import placements

_PACKAGES = ("nvidia-dali-cuda120", "nvidia-dali-cuda130", "nvidia-nvimgcodec-cu12", "nvidia-nvimgcodec-cu13")


def describe(device: str | None) -> dict[str, Any]:
    """Name, driver, memory, CUDA and the packages' versions; ``missing`` says why there is no GPU."""
    found: dict[str, Any] = {"packages": _versions(), "driver": _driver()}
    missing = placements.missing_gpu(device)
    if missing is not None:
        return {**found, "missing": missing}
    import torch

    properties = torch.cuda.get_device_properties(torch.device(str(device)))
    return {
        **found,
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "num_processors": properties.multi_processor_count,
        "cuda": torch.version.cuda,
    }


def used_bytes(device: str | None) -> int | None:
    """What all processes hold of the GPU's memory; None without one."""
    if device is None:
        return None
    import torch

    torch.cuda.synchronize(device)
    free_bytes, all_bytes = torch.cuda.mem_get_info(device)
    return all_bytes - free_bytes


def trim() -> None:
    """Have DALI and torch give back what they hold of the GPU's memory and do not use."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module("nvidia.dali.backend").ReleaseUnusedMemory()


def _driver() -> str | None:
    asked = shutil.which("nvidia-smi")
    if asked is None:
        return None
    query = [asked, "--query-gpu=driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    return answer.stdout.strip().partition("\n")[0] or None


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
