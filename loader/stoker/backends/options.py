"""Which back-end makes samples, and where it may work."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from stoker import ops
from stoker.errors import SpecError

Name = Literal["auto", "cpu", "dali"]
Place = Literal["auto", "cpu", "mixed", "gpu"]

_DEVICE = re.compile(r"cpu|cuda(:\d+)?")
_CPU_ROWS = 8
_GPU_ROWS = 64


@dataclass(frozen=True, slots=True)
class Backend:
    """How the ops of a pipeline are carried out here. It changes no order, window or mask, and is no part of it.

    * ``name``: ``"cpu"``, ``"dali"``, or ``"auto"``: DALI where a GPU was given and it is installed, else ``cpu``.
    * ``device``: ``"cpu"``, ``"cuda"`` or ``"cuda:1"``: where DALI may work. No GPU is opened unless it is given.
    * ``placement``: where DALI does an op, for all or by the op's class name, as ``{"DecodeImage": "mixed"}``.
      ``"mixed"``: a decoder that begins on the CPU and ends on the GPU, and the GPU for other ops; ``"gpu"`` the same;
      ``"cpu"``: DALI on the CPU; ``"auto"``: the GPU if there is one. An op behind one on the GPU stays there.
    * ``rows``: samples that go through DALI together, at most; 0: 8 on the CPU, 64 on a GPU.
    * ``max_device_pixels``: pictures of more are decoded on the CPU.
    * ``device_bytes``: GPU memory in DALI's pools; beyond it they are trimmed after each run.

    Raises SpecError.
    """

    name: Name = "auto"
    device: str = "cpu"
    placement: Place | Mapping[str, Place] = "auto"
    rows: int = 0
    max_device_pixels: int = 50_000_000
    device_bytes: int = field(default=2 << 30)

    def __post_init__(self) -> None:
        if self.name not in get_args(Name):
            raise SpecError(f"no back-end is named {self.name!r}; known: {', '.join(get_args(Name))}")
        if not _DEVICE.fullmatch(str(self.device)):
            raise SpecError(f"device is {self.device!r}; expected cpu, cuda, or cuda: and a number")
        for op in self.placement if isinstance(self.placement, Mapping) else ():
            if op not in ops.__all__:
                raise SpecError(f"placement: no op is named {op!r}; known: {', '.join(ops.__all__)}")
        places = self.placement.values() if isinstance(self.placement, Mapping) else [self.placement]
        for place in places:
            if place not in get_args(Place):
                raise SpecError(f"placement is {place!r}; expected one of {', '.join(get_args(Place))}")
            if place in ("mixed", "gpu") and not self.is_gpu:
                raise SpecError(f'placement {place!r} needs a GPU: give device="cuda:0"')
        self._check_amounts()
        if self.name == "cpu" and self.is_gpu:
            raise SpecError(
                f"device={self.device!r}: the back-end 'cpu' uses no GPU; take 'dali' or 'auto', or device 'cpu'"
            )

    def _check_amounts(self) -> None:
        for name, least in (("rows", 0), ("max_device_pixels", 0), ("device_bytes", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise SpecError(f"{name} is {value!r}; expected a whole number, at least {least}")

    @property
    def is_gpu(self) -> bool:
        return self.device != "cpu"

    @property
    def device_index(self) -> int:
        """The GPU's number; 0 where none is told."""
        return int(self.device.partition(":")[2] or 0)

    @property
    def rows_together(self) -> int:
        """Rows that go through DALI together at most."""
        return self.rows or (_GPU_ROWS if self.is_gpu else _CPU_ROWS)

    def place_of(self, op: str) -> Place:
        """Where an op of this class name is done: ``"cpu"``, ``"mixed"`` or ``"gpu"``."""
        asked = self.asked_place_of(op)
        return ("mixed" if self.is_gpu else "cpu") if asked == "auto" else asked

    def asked_place_of(self, op: str) -> Place:
        """What was asked for an op of this class name, ``"auto"`` where nothing was."""
        return self.placement.get(op, "auto") if isinstance(self.placement, Mapping) else self.placement


AUTO_BACKEND = Backend()
"""What is there, and no GPU."""


def as_backend(backend: str | Backend) -> Backend:
    """Read what a user gave. Raises SpecError."""
    return backend if isinstance(backend, Backend) else Backend(name=backend)  # type: ignore[arg-type]  # it checks
