"""How much of a disk a cache may take (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from stoker.errors import SpecError
from stoker.storage.cache.options import CacheOptions

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Space:
    """A file system: what there is, what is free. ``total_files`` is 0 where inodes are made as needed."""

    total_bytes: int
    free_bytes: int
    total_files: int
    free_files: int


@dataclass(frozen=True, slots=True)
class Held:
    """What lies in the folder, with the parts that are being written: ``reserved_bytes``, perhaps not on disk yet."""

    num_bytes: int = 0
    num_files: int = 0
    reserved_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that the folder may hold, and what must stay free beside it."""

    num_bytes: int
    num_files: int
    reserve_bytes: int


def budget_of(options: CacheOptions, space: Space, held: Held) -> Budget:
    """What the options mean on this disk, of which the folder already holds a part."""
    reserve = options.reserve_bytes
    if reserve is None:
        reserve = max(space.total_bytes // 20, min(_GIB, space.total_bytes // 10))
    num_bytes = options.disk_bytes
    if num_bytes is None:
        num_bytes = max(0, min((space.free_bytes + held.num_bytes) // 2, space.total_bytes - reserve))
    elif num_bytes > space.total_bytes - reserve:
        raise SpecError(
            f"the cache in {options.folder} cannot get disk_bytes={num_bytes:,}: its disk has {space.total_bytes:,}"
            f" bytes, of which reserve_bytes={reserve:,} stay free. Give disk_bytes of at most"
            f" {max(0, space.total_bytes - reserve):,}, or a folder on a disk of at least {num_bytes + reserve:,} bytes"
        )
    num_files = options.max_files
    if num_files is None:
        num_files = (space.free_files + held.num_files) // 2 if space.total_files else num_bytes
    return Budget(num_bytes, num_files, reserve)


def shortage(entry_bytes: int, budget: Budget, held: Held, free_bytes: int) -> tuple[int, int]:
    """How many bytes and files must go before an entry of ``entry_bytes`` fits (at most 0: it fits)."""
    over_budget = held.num_bytes + entry_bytes - budget.num_bytes
    over_disk = held.reserved_bytes + entry_bytes + budget.reserve_bytes - free_bytes
    return max(over_budget, over_disk), held.num_files + 1 - budget.num_files


def overfull(budget: Budget, held: Held, free_bytes: int) -> tuple[int, int]:
    """How many bytes and files must go whatever for (at most 0: none)."""
    over_bytes = max(held.num_bytes - budget.num_bytes, budget.reserve_bytes - free_bytes)
    return over_bytes, held.num_files - budget.num_files
