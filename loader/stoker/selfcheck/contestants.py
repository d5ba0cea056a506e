"""The back-ends that can be had here, and why the others cannot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stoker.backends.options import Backend
from stoker.backends.registry import has_dali
from stoker.backends.tolerances import Limit, Tolerance

Place = Literal["dali", "gpu", "mixed"]
"""The field of a :class:`Tolerance` that a back-end is held to."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A back-end that is compared with ``cpu``."""

    name: str
    backend: Backend
    place: Place

    @property
    def is_measured(self) -> bool:
        """Whether its tolerances were measured; else they are what is expected."""
        return self.place == "dali"

    def limit(self, tolerance: Tolerance) -> Limit:
        """What it may differ by."""
        limit: Limit = getattr(tolerance, self.place)
        return limit


@dataclass(frozen=True, slots=True)
class Absent:
    """A back-end that is not compared."""

    name: str
    reason: str


def contestants(device: str, reason: str) -> tuple[list[Contestant], list[Absent]]:
    """Return those that are here; ``device`` is ``"cpu"`` or a GPU that is here, ``reason`` says why there is none."""
    if not has_dali():
        missing = "NVIDIA DALI is not installed: pip install 'stoker[dali]'"
        return [], [Absent("dali", missing)]
    here = [Contestant("dali, CPU", Backend("dali"), "dali")]
    if device == "cpu":
        return here, [Absent("dali, GPU", reason)]
    decoded_here = Backend("dali", device=device, placement={"DecodeImage": "cpu"})
    return [
        *here,
        Contestant(f"dali, ops on {device}", decoded_here, "gpu"),
        Contestant(f"dali, all on {device}", Backend("dali", device=device), "mixed"),
    ], []
