"""Back-end ``dali``: NVIDIA DALI, on the CPU or a GPU, with the windows, factors and verdicts of ``cpu``."""

from __future__ import annotations

from collections.abc import Sequence

import stoker.backends.cpu  # noqa: F401  # registers what carries out the ops that DALI lacks
from stoker.backends.dali.kernels import dali_kernel
from stoker.backends.dali.runner import Runner
from stoker.backends.options import Backend
from stoker.backends.program import Program
from stoker.backends.registry import has_dali, kernels_of
from stoker.errors import MissingDependencyError
from stoker.ops.image_op import ImageOp
from stoker.ops.op import Op
from stoker.ops.rename import Rename


def compile_steps(ops: Sequence[Op], prefix_length: int, backend: Backend) -> Program:
    """Make the program of a pipeline's ops. What stands before a cache is made by ``cpu``, wherever it is kept.

    Raises SpecError, MissingDependencyError.
    """
    if not has_dali():
        raise MissingDependencyError(
            'backend="dali" needs NVIDIA DALI: pip install "stoker[dali]", or "stoker[dali-cuda13]" for CUDA 13'
        )
    runner = Runner(backend)
    kernels, stops, on_device = [], [], set[str]()
    for index, (op, on_cpu) in enumerate(kernels_of(ops, "cpu")):
        kernel = None if index < prefix_length else dali_kernel(op, runner, on_cpu)
        if kernel is None and index > prefix_length and (op.is_code or isinstance(op, ImageOp)):
            stops.append(index)
        on_device = _on_device(on_device, op, is_dalis=kernel is not None)
        kernels.append((op, kernel or on_cpu))
    return Program(kernels, prefix_length, stops, backend.rows_together, runner, on_device)


def _on_device(fields: set[str], op: Op, *, is_dalis: bool) -> set[str]:
    """Which fields DALI makes last, after another op."""
    if is_dalis:
        return fields | set(op.writes)
    if op.is_code:
        return set()
    if isinstance(op, Rename):
        return {op.names.get(name, name) for name in fields}
    return fields - set(op.writes) - set(op.drops)
