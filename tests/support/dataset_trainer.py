"""A trainer over a torch dataset at a service, in a process of its own that may be killed.

It prints the process ids of its workers, then goes on until it ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading

import torch
from torch.utils.data import Dataset

from stoker.compat.loader import DataLoader
from support import programs


class Pids(Dataset[torch.Tensor]):
    """Every sample is the process id of whoever fetched it."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(os.getpid())


def _train(service: str, num_workers: int) -> None:
    pause = threading.Event()
    with DataLoader(Pids(), batch_size=4, num_workers=num_workers, service=service) as loader:
        pids = sorted({int(pid) for batch in loader for pid in batch})
        programs.say(pids)
        while True:
            for _ in loader:
                pause.wait(0.05)


if __name__ == "__main__":
    _train(sys.argv[1], json.loads(sys.argv[2]))
