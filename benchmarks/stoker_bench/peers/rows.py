"""Where each picture lies inside tar shards, for peers that take samples by number."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Row:
    """One sample: its JPEG's place in a shard, and its label."""

    shard: str
    offset: int
    size_bytes: int
    label: int


def scan(shards: Sequence[Path]) -> list[Row]:
    """List the samples of shards that hold ``<key>.cls`` before ``<key>.jpg``."""
    rows = []
    for shard in shards:
        label = -1
        with tarfile.open(shard) as tar:
            for member in tar:
                if member.name.endswith(".cls"):
                    content = tar.extractfile(member)
                    label = int(content.read()) if content else -1
                else:
                    rows.append(Row(str(shard), member.offset_data, member.size, label))
    return rows


class RowReader:
    """Reads rows with ``pread``; each process opens a shard once, when it first needs it."""

    def __init__(self) -> None:
        self._descriptors: dict[str, int] = {}

    def read(self, row: Row) -> bytes:
        descriptor = self._descriptors.get(row.shard)
        if descriptor is None:
            descriptor = self._descriptors[row.shard] = os.open(row.shard, os.O_RDONLY)
        return os.pread(descriptor, row.size_bytes, row.offset)
