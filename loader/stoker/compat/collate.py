"""torch's default_collate, stacking into memory that the trainer sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data._utils import collate as torchs

from stoker.batch.pool import BufferPool
from stoker.processes.results.outgoing import LARGE_BYTES

_torchs_own = torchs.collate_tensor_fn


def install(pool: BufferPool) -> None:
    """Make torch's ``default_collate`` in this process stack tensors into memory of ``pool``, or of the next one.

    So do the user's own functions that call it, or that take torch's map and add to it. torch's own function would make
    a file in /dev/shm for each batch in a worker, since ``get_worker_info`` says that it is in one.
    """

    def collate_tensor_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
        return _stack(batch, collate_fn_map, pool)

    torchs.default_collate_fn_map[torch.Tensor] = collate_tensor_fn
    torchs.collate_tensor_fn = collate_tensor_fn


def into(pool: BufferPool) -> Callable[[Any], Any]:
    """Return a function that gives what torch's ``default_collate`` gives, in memory of ``pool``."""

    def collate_tensor_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
        return _stack(batch, collate_fn_map, pool)

    functions = {**torchs.default_collate_fn_map, torch.Tensor: collate_tensor_fn}
    return lambda samples: torchs.collate(samples, collate_fn_map=functions)


def _stack(batch: Any, collate_fn_map: Any, pool: BufferPool) -> Any:
    """Stack as torch does in a trainer: mixed dtypes are promoted, whatever the number of workers.

    As in torch's workers, the batch is contiguous, and samples that require grad are an error.
    """
    sample = batch[0]
    if sample.is_nested or sample.layout is not torch.strided:
        return _torchs_own(batch, collate_fn_map=collate_fn_map)  # which says that it does not stack such
    if len(batch) * sample.nbytes < LARGE_BYTES or not _is_plain(sample):
        stacked = torch.stack(batch, 0)
        if stacked.requires_grad:
            torch.stack(batch, 0, out=torch.empty(0, dtype=stacked.dtype))  # which has torch's own words for it
        return stacked if stacked.is_quantized else stacked.contiguous()
    if len({tensor.dtype for tensor in batch}) > 1:
        return torch.stack(batch, 0).contiguous()  # torch would cast to the dtype of the memory it is given
    room = torch.from_numpy(pool.take(len(batch) * sample.nbytes))
    return torch.stack(batch, 0, out=room.view(sample.dtype).view(len(batch), *sample.shape))


def _is_plain(sample: torch.Tensor) -> bool:
    """Whether it has numbers in memory that can lie elsewhere as well."""
    has_memory = type(sample).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    return has_memory and sample.is_cpu and not sample.is_quantized
