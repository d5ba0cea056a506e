"""Which rank of how many this process is."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from stoker.errors import SpecError

_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


@dataclass(frozen=True, slots=True)
class Rank:
    """Rank ``index`` of ``world_size``. Raises SpecError if it is none of them."""

    index: int
    world_size: int

    def __post_init__(self) -> None:
        if self.world_size < 1 or not 0 <= self.index < self.world_size:
            raise SpecError(f"rank {self.index} of world_size {self.world_size}: expected 0 <= rank < world_size")


def find(rank: int | None, world_size: int | None, environment: Mapping[str, str] = os.environ) -> Rank:
    """The rank that is given, else torch.distributed's if it runs, else the launcher's variables', else 0 of 1."""
    if (rank is None) != (world_size is None):
        raise SpecError(f"rank={rank} and world_size={world_size}: give both of them or neither")
    if rank is not None and world_size is not None:
        return Rank(rank, world_size)
    return _from_torch() or _from_environment(environment) or Rank(0, 1)


def _from_torch() -> Rank | None:
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return Rank(distributed.get_rank(), distributed.get_world_size())


def _from_environment(environment: Mapping[str, str]) -> Rank | None:
    for index_name, size_name in _VARIABLES:
        if (index_name in environment) != (size_name in environment):
            found, missing = (index_name, size_name) if index_name in environment else (size_name, index_name)
            raise SpecError(f"the environment has {found} but not {missing}; give rank and world_size")
        if index_name in environment:
            try:
                return Rank(int(environment[index_name]), int(environment[size_name]))
            except ValueError:
                found = f"{index_name}={environment[index_name]!r}, {size_name}={environment[size_name]!r}"
                raise SpecError(f"the environment's rank is not a number: {found}; give rank and world_size") from None
    return None
