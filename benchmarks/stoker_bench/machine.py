"""Says what a figure was measured on."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "opencv-python-headless", "pillow", "pyarrow", "simplejpeg", "stoker", "torch", "torchvision")


def describe() -> dict[str, Any]:
    """Return processor, usable cores, kernel, Python and the versions of the packages that matter."""
    return {
        "processor": _processor(),
        "cores": num_cores(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name)) is not None},
    }


def num_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
