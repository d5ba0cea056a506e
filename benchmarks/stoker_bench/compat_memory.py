"""One loader over many path strings: how much more memory it needs after three epochs than at the start.

A program of its own, since what is measured is all its processes together.
"""

from __future__ import annotations

import json
import os
import sys

from stoker_bench.compat_data import Paths, descendants, private_bytes
from stoker_bench.peers.torch_loader import LOADERS

BATCH_SIZE = 5000


def main(which: str, num_paths: int, num_workers: int, num_epochs: int) -> None:
    """Print bytes at the first batch of the first epoch, and at the end of each epoch."""
    options = {"multiprocessing_context": "fork"} if which == "torch" else {}
    loader = LOADERS[which](
        Paths(num_paths),
        batch_size=BATCH_SIZE,
        shuffle=True,
        num_workers=num_workers,
        persistent_workers=True,
        **options,
    )
    found: list[int] = []
    for _ in range(num_epochs):
        for batch_index, _ in enumerate(loader):
            if not found and batch_index == 2 * num_workers:  # each worker has made one
                found.append(private_bytes([os.getpid(), *descendants()]))
        found.append(private_bytes([os.getpid(), *descendants()]))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
