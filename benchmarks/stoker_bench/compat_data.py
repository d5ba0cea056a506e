"""Datasets that a loader of torch datasets is measured on."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset


class SmallTensors(Dataset[torch.Tensor]):
    """Samples so small that what is measured is the loader itself."""

    def __init__(self, num_samples: int, num_values: int = 64) -> None:
        self._samples = torch.rand(num_samples, num_values, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._samples[index]


class Heavy(Dataset[torch.Tensor]):
    """An object of many bytes, half of them in an array and half in a list of paths; its samples are small."""

    def __init__(self, num_bytes: int) -> None:
        self._array = np.random.default_rng(0).integers(0, 255, num_bytes // 2, np.uint8)
        self._paths = paths(num_bytes // 2 // _PATH_BYTES)

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([int(self._array[index]), len(self._paths[index])])


class Paths(Dataset[int]):
    """Nothing but a list of paths, as an image folder's index is."""

    def __init__(self, num_paths: int) -> None:
        self._paths = paths(num_paths)

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> int:
        return len(self._paths[index])


_PATH_BYTES = 110  # of a str object of this length, with the list's reference to it


def paths(num_paths: int) -> list[str]:
    """Paths as image folders have them."""
    return [
        f"/data/imagenet/train/n{index % 1000:08d}/n{index % 1000:08d}_{index:08d}.JPEG" for index in range(num_paths)
    ]


def private_bytes(pids: list[int]) -> int:
    """Memory that these processes share with no other."""
    page = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Private_"):
                page += int(line.split()[1]) * 1024
    return page


def descendants() -> list[int]:
    """The processes that this one has started, directly or not."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]
