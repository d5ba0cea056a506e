"""The global generators of Python, NumPy and torch, seeded for a worker or for a sample."""

from __future__ import annotations

import hashlib
import random
import struct
from typing import Final

import numpy as np
import torch
from torch.utils.data._utils import worker as torch_worker

_PLACE: Final = struct.Struct("<qq")
_WORDS: Final = struct.Struct("<16s4II")
AFTER_THE_ROWS: Final = -1
"""The row of ``collate_fn``: what it draws does not depend on what the last sample drew."""


def seed_worker(base_seed: int, worker_index: int) -> int:
    """Seed all generators as torch seeds those of a worker; returns the worker's seed."""
    seed = base_seed + worker_index
    random.seed(seed)
    torch.manual_seed(seed)
    np.random.seed(torch_worker._generate_state(base_seed, worker_index))  # type: ignore[no-untyped-call]
    return seed


def seed_sample(base_seed: int, batch_index: int, row: int) -> None:
    """Seed all generators for one sample, about 20 µs: the same wherever and after whatever it is fetched.

    All three are the same generator underneath, so they get different seeds. torch's, on the CPU only, takes no more
    than 32 bits. ``torch.manual_seed`` costs 160 µs, since it notes what is to be done should CUDA be started later.
    """
    key = b"%d" % base_seed
    digest = hashlib.blake2b(_PLACE.pack(batch_index, row), digest_size=_WORDS.size, key=key).digest()
    for_python, *for_numpy, for_torch = _WORDS.unpack(digest)
    random.seed(int.from_bytes(for_python, "little"))
    torch.default_generator.manual_seed(for_torch)
    np.random.seed(for_numpy)
