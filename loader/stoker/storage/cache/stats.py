"""What a cache did."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counts since the cache was opened, and what is held now.

    A range is a hit if this call did not load it; what another thread just loaded is a hit in memory. ``bytes_*`` are
    those of the ranges served. ``held_disk_*`` are of the folder, so of all its processes. ``declined`` ranges were
    loaded and not kept, ``errors`` are those of the cache's own disk, which only make it slower.
    """

    hits_ram: int = 0
    hits_disk: int = 0
    misses: int = 0
    bytes_ram: int = 0
    bytes_disk: int = 0
    bytes_missed: int = 0
    held_ram_bytes: int = 0
    held_disk_bytes: int = 0
    held_files: int = 0
    evicted: int = 0
    declined: int = 0
    errors: int = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __add__(self, other: CacheStats) -> CacheStats:
        sums = {each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)}
        for name in ("held_disk_bytes", "held_files"):  # of the folder, which those who are added up share
            sums[name] = max(getattr(self, name), getattr(other, name))
        return CacheStats(**sums)
