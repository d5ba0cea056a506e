"""Samples become an Arrow record batch, a batch becomes arrays; see the README beside this file."""

from __future__ import annotations

from stoker.batch.builder import BatchBuilder
from stoker.batch.collate import Collate
from stoker.batch.convert import num_bytes, to_jax, to_numpy, to_torch
from stoker.batch.filler import empty
from stoker.batch.pool import BufferPool, PoolStats
from stoker.batch.ragged import Ragged

__all__ = [
    "BatchBuilder",
    "BufferPool",
    "Collate",
    "PoolStats",
    "Ragged",
    "empty",
    "num_bytes",
    "to_jax",
    "to_numpy",
    "to_torch",
]
