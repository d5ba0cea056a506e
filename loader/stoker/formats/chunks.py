"""How rows are cut into chunks; pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stoker.formats.dataset import ChunkTable

_BLOCK_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class Chunks:
    """The chunks of a data set with the shard that each lies in."""

    table: ChunkTable
    shard: NDArray[np.int32]

    def rows(self, chunk_index: int) -> tuple[int, int]:
        """The rows ``[first, stop)`` of a chunk, counted in the whole data set."""
        first = int(self.table.first_sample[chunk_index])
        return first, first + int(self.table.num_rows[chunk_index])


def cut(
    offset: NDArray[np.int64],
    size: NDArray[np.uint32] | NDArray[np.int64],
    first_rows: NDArray[np.int64],
    chunk_bytes: int,
    whole: NDArray[np.bool_] | None = None,
    max_rows: int | None = None,
) -> Chunks:
    """Neighbouring rows of a shard whose offsets lie in the same bucket of ``chunk_bytes`` make a chunk.

    ``first_rows`` has each shard's first row, and the number of rows as a last entry. Shards that are ``whole`` are
    one chunk each. No chunk has more than ``max_rows``.
    """
    is_start = _bucket_starts(offset, chunk_bytes)
    is_start[first_rows[:-1][np.diff(first_rows) > 0]] = True
    if max_rows is not None:
        is_start[::max_rows] = True
    if whole is not None:
        for shard_index in np.flatnonzero(whole):
            is_start[first_rows[shard_index] + 1 : first_rows[shard_index + 1]] = False
    starts = np.flatnonzero(is_start)
    num_rows = np.diff(starts, append=len(offset)).astype(np.int32)
    last = starts + num_rows - 1
    size_bytes = offset[last] - offset[starts] + size[last]
    chunks_per_shard = np.diff(np.searchsorted(starts, first_rows))
    shard = np.repeat(np.arange(len(chunks_per_shard), dtype=np.int32), chunks_per_shard)
    return Chunks(ChunkTable(num_rows, size_bytes, starts), shard)


def _bucket_starts(offset: NDArray[np.int64], chunk_bytes: int) -> NDArray[np.bool_]:
    """Which rows have another bucket than the row before; in blocks, to need little memory beside the arrays."""
    found = np.zeros(len(offset), np.bool_)
    for start in range(0, len(offset), _BLOCK_ROWS):
        first = max(start - 1, 0)
        bucket = offset[first : start + _BLOCK_ROWS] // chunk_bytes
        found[first + 1 : start + _BLOCK_ROWS] = bucket[1:] != bucket[:-1]
    return found
