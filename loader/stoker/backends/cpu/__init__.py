"""Back-end ``cpu``: importing it registers what carries out each op."""

from __future__ import annotations

from collections.abc import Sequence

import stoker.backends.cpu.audio
import stoker.backends.cpu.augment
import stoker.backends.cpu.blur
import stoker.backends.cpu.colour
import stoker.backends.cpu.decode
import stoker.backends.cpu.erase
import stoker.backends.cpu.fields
import stoker.backends.cpu.functions
import stoker.backends.cpu.geometry
import stoker.backends.cpu.numbers
import stoker.backends.cpu.video  # noqa: F401
from stoker.backends.options import Backend
from stoker.backends.program import Program
from stoker.backends.registry import kernels_of
from stoker.ops.op import Op


def compile_steps(ops: Sequence[Op], prefix_length: int, backend: Backend) -> Program:  # noqa: ARG001  # all back-ends'
    """Make the program of a pipeline's ops. Raises SpecError, MissingDependencyError."""
    return Program(kernels_of(ops, "cpu"), prefix_length)
