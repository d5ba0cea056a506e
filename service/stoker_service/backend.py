"""The back-end of a worker: from its options, and whether it can work on this machine."""

from __future__ import annotations

import importlib
import os
from dataclasses import replace
from typing import Any, Final

from stoker.backends.options import Backend
from stoker.backends.registry import backend_name, compile_ops
from stoker.errors import SpecError
from stoker_service import gpus
from stoker_service.gpus import VISIBLE_VARIABLE, NoDriverError

_REMEDY: Final = "start it on a machine or in a container that has one, or with device 'cpu'"


def read_backend(name: str, device: str, placement: str, device_bytes: int) -> Backend:
    """Read what the command line says; ``placement`` is one for all ops, or ``Op=place`` pairs with commas between.

    Raises SpecError.
    """
    places: Any = placement
    if "=" in placement:
        pairs = [pair.partition("=") for pair in placement.split(",")]
        places = {op.strip(): place.strip() for op, _, place in pairs}
    return Backend(name, device, places, device_bytes=device_bytes)  # type: ignore[arg-type]  # it checks


def check(backend: Backend) -> None:
    """See that a back-end can work here, before anybody relies on it. Opens no GPU.

    Raises SpecError for a GPU that is not here, MissingDependencyError for a package.
    """
    if backend.is_gpu and backend.name == "auto":
        backend = replace(backend, name="dali")  # it is not left out without a word for want of DALI
    compile_ops((), backend)
    if backend.is_gpu:
        _check_device(backend)


def preload(backend: Backend) -> None:
    """Import what making samples needs, which takes seconds, with the GIL held for long at a time."""
    from stoker.backends.cpu.preload import preload as import_all

    import_all()
    if backend_name(backend) == "dali":
        for module in ("fn", "math", "pipeline", "types"):
            importlib.import_module(f"nvidia.dali.{module}")


def shown(backend: Backend) -> tuple[str, str]:
    """The back-end that a worker has, and its device: ``("dali", "cuda:0")``."""
    return backend_name(backend), f"cuda:{backend.device_index}" if backend.is_gpu else "cpu"


def spread(device: str, index: int) -> str:
    """The device of worker ``index``: with ``cuda``, the GPUs go round."""
    if device != "cuda":
        return device
    try:
        num_gpus = len(gpus.visible_gpus())
    except NoDriverError:
        num_gpus = 0
    return f"cuda:{index % max(1, num_gpus)}"  # without a GPU the worker itself says what it lacks


def _check_device(backend: Backend) -> None:
    visible = os.environ.get(VISIBLE_VARIABLE)
    hint = "" if visible is None else f" ({VISIBLE_VARIABLE}={visible!r} is set)"
    try:
        num_gpus = len(gpus.visible_gpus())
    except NoDriverError as error:
        raise SpecError(f"device={backend.device!r}: expected a GPU, found none: {error}; {_REMEDY}") from None
    if not num_gpus:
        raise SpecError(f"device={backend.device!r}: expected a GPU, found none{hint}; {_REMEDY}")
    if backend.device_index >= num_gpus:
        known = ", ".join(f"cuda:{index}" for index in range(num_gpus))
        raise SpecError(f"device={backend.device!r}: expected one of {known}{hint}")
