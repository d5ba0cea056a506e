"""Memory that a GPU can fetch from by itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stoker.batch.pool import BufferPool, fresh


def pool_for(*, pin_memory: bool) -> BufferPool:
    """A pool of warm memory, pinned where that is asked for and there is CUDA."""
    return BufferPool(allocate=_pinned) if pin_memory and _has_cuda() else BufferPool()


def _has_cuda() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def _pinned(num_bytes: int) -> NDArray[np.uint8]:
    import torch

    try:
        found: NDArray[np.uint8] = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True).numpy()
    except RuntimeError:  # no more memory may be pinned: ordinary memory does
        return fresh(num_bytes)
    return found
