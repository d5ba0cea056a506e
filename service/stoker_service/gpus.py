"""The GPUs of this machine, as the driver tells: no CUDA context is opened, no memory taken."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stoker.errors import StokerError

VISIBLE_VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
ORDER_VARIABLE: Final = "CUDA_DEVICE_ORDER"

_LIBRARY: Final = "libnvidia-ml.so.1"
_LISTED: Final = Path("/proc/driver/nvidia/gpus")
_PART: Final = "MIG-"
_NAME_BYTES: Final = 96


class NoDriverError(StokerError):
    """There is no driver of NVIDIA's, or it does not answer; says which."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as the driver names it."""

    uuid: str
    name: str


class _Memory(ctypes.Structure):
    """``nvmlMemory_t``."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def visible_gpus() -> list[Gpu]:
    """The GPUs that CUDA would show this process; ``cuda:i`` is the i-th if all are of one kind.

    Raises NoDriverError.
    """
    return chosen(all_gpus(), os.environ.get(VISIBLE_VARIABLE))


def all_gpus() -> list[Gpu]:
    """The GPUs that the driver shows, in the order of the bus. Raises NoDriverError."""
    try:
        with _nvml() as nvml:
            count = ctypes.c_uint()
            _check(nvml, nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)))
            return [_gpu(nvml, index) for index in range(count.value)]
    except NoDriverError:  # a container may have what computes, and not what manages
        listed = listed_gpus(_LISTED)
        if not listed:
            raise
        return listed


def listed_gpus(folder: Path) -> list[Gpu]:
    """The GPUs that the kernel's part of the driver lists, a folder each, named by its place on the bus."""
    found = []
    for path in sorted(folder.glob("*/information")):
        told = dict(line.split(":", 1) for line in path.read_text(errors="replace").splitlines() if ":" in line)
        found.append(Gpu(told.get("GPU UUID", "").strip(), told.get("Model", "").strip()))
    return found


def chosen(found: Sequence[Gpu], variable: str | None) -> list[Gpu]:
    """What a value of CUDA_VISIBLE_DEVICES leaves of the GPUs, as CUDA reads it: up to the first that is none."""
    if variable is None:
        return list(found)
    left: list[Gpu] = []
    for part in variable.split(","):
        gpu = _named(found, part.strip())
        if gpu is None or any(gpu is other for other in left):
            break
        left.append(gpu)
    return left


def used_bytes(index: int) -> int | None:
    """Memory in use on the GPU ``cuda:index``, by whoever uses it; None if that cannot be told."""
    try:
        gpus = visible_gpus()
        if index >= len(gpus) or not _is_order_known(gpus):
            return None
        with _nvml() as nvml:
            handle, memory = ctypes.c_void_p(), _Memory()
            _check(nvml, nvml.nvmlDeviceGetHandleByUUID(gpus[index].uuid.encode(), ctypes.byref(handle)))
            _check(nvml, nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)))
            return int(memory.used)
    except NoDriverError:
        return None


def _is_order_known(gpus: Sequence[Gpu]) -> bool:
    """CUDA puts the fastest first unless it is told the bus's order; among equals that is the bus's order too."""
    return len({gpu.name for gpu in gpus}) == 1 or os.environ.get(ORDER_VARIABLE) == "PCI_BUS_ID"


def _named(found: Sequence[Gpu], name: str) -> Gpu | None:
    """The one that is named by its number, or by the beginning of its UUID; a part of one counts as a GPU."""
    if name.startswith(_PART):
        return Gpu(name, _PART)
    if name.isdecimal():
        return found[int(name)] if int(name) < len(found) else None
    matching = [gpu for gpu in found if name and gpu.uuid.startswith(name)]
    return matching[0] if len(matching) == 1 else None


@contextmanager
def _nvml() -> Iterator[Any]:
    try:
        nvml = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise NoDriverError(f"there is no NVIDIA driver ({error})") from None
    nvml.nvmlErrorString.restype = ctypes.c_char_p
    _check(nvml, nvml.nvmlInit_v2())
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = ctypes.c_void_p()
    uuid, name = (ctypes.create_string_buffer(_NAME_BYTES) for _ in range(2))
    _check(nvml, nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)))
    _check(nvml, nvml.nvmlDeviceGetUUID(handle, uuid, ctypes.c_uint(_NAME_BYTES)))
    _check(nvml, nvml.nvmlDeviceGetName(handle, name, ctypes.c_uint(_NAME_BYTES)))
    return Gpu(uuid.value.decode(), name.value.decode())


def _check(nvml: Any, status: int) -> None:
    if status:
        raise NoDriverError(f"the NVIDIA driver does not answer: {nvml.nvmlErrorString(status).decode()}")
