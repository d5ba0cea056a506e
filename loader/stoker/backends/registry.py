"""Which back-end carries out which op."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

from stoker.backends.options import Backend, as_backend
from stoker.backends.program import Kernel, Program
from stoker.errors import SpecError
from stoker.ops.cache import prefix_length, without_cache
from stoker.ops.decode_image import DecodeImage
from stoker.ops.op import Op
from stoker.ops.to_layout import ToLayout

Factory = Callable[[Any], Kernel]
"""Makes the kernel of one op; raises MissingDependencyError when a package is not there."""

_PIXELS_VERSION = 1
"""To be raised when a kernel's output changes for the same packages: samples kept decoded are then forgotten."""
_MAKES_PIXELS = (
    "av",
    "numpy",
    "opencv-python",
    "opencv-python-headless",
    "pillow",
    "simplejpeg",
    "soundfile",
    "soxr",
    "torch",
)
_factories: dict[tuple[str, type[Op]], Factory] = {}


def implements(op_type: type[Op], backend: str = "cpu") -> Callable[[Factory], Factory]:
    """Register the decorated factory as what carries out ``op_type`` on ``backend``."""

    def register(factory: Factory) -> Factory:
        _factories[backend, op_type] = factory
        return factory

    return register


def compile_ops(ops: Sequence[Op], backend: str | Backend = "auto") -> Program:
    """Make a program of ``ops``; ``auto`` picks the back-end by what is there. A Cache is no step of it: it splits it.

    Raises SpecError for an unknown back-end or an op that it lacks, MissingDependencyError for a missing extra.
    """
    asked = as_backend(backend)
    module = importlib.import_module(f"stoker.backends.{backend_name(asked)}")
    steps = without_cache(ops)
    _check_layouts(steps)
    program: Program = module.compile_steps(steps, prefix_length(ops) or 0, asked)
    return program


def backend_name(backend: Backend) -> Literal["cpu", "dali"]:
    """The back-end that is meant: ``auto`` is DALI where a GPU was given and DALI is installed."""
    if backend.name != "auto":
        return backend.name
    return "dali" if backend.is_gpu and has_dali() else "cpu"


def has_dali() -> bool:
    """Whether DALI is installed; it is not imported."""
    try:
        return importlib.util.find_spec("nvidia.dali") is not None
    except ModuleNotFoundError:  # nothing of nvidia's is
        return False


def kernels_of(ops: Sequence[Op], backend: str) -> list[tuple[Op, Kernel]]:
    """The kernel of each op. Raises SpecError for one that the back-end lacks."""
    return [(op, _factory(op, backend)(op)) for op in ops]


@functools.cache
def pixels_identity() -> str:
    """What decides pixels before a cache beside the ops: the releases of the packages that they are made by."""
    found = []
    for package in _MAKES_PIXELS:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return f"cpu {_PIXELS_VERSION}: {', '.join(found)}"


def _check_layouts(ops: Sequence[Op]) -> None:
    """Raise SpecError for an op on a picture whose channels were put first before it."""
    channels_first: dict[str, Op] = {}
    for op in ops:
        for field in op.needs_image:
            if field in channels_first:
                raise SpecError(
                    f"{op.label} stands after {channels_first[field].label}, which must be the field's last"
                )
        if isinstance(op, ToLayout) and op.layout == "NCHW":
            channels_first[op.field] = op
        elif isinstance(op, DecodeImage):
            channels_first.pop(op.target, None)


def _factory(op: Op, backend: str) -> Factory:
    for op_type in type(op).__mro__:
        if (backend, op_type) in _factories:
            return _factories[backend, op_type]
    raise SpecError(f"{op.label}: the back-end {backend!r} has no such op")
