"""What a source is once it is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stoker.errors import SampleError, SampleOrigin
from stoker.sample import RawSample


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """All chunks of a data set, in manifest order; the arrays have one entry per chunk.

    A chunk is a run of neighbouring rows of one shard that is read with one request. ``first_sample`` is the number,
    in the whole data set, of the chunk's first sample: the running sum of ``num_rows``.
    """

    num_rows: NDArray[np.int32]
    size_bytes: NDArray[np.int64]
    first_sample: NDArray[np.int64]

    @property
    def num_samples(self) -> int:
        return int(self.first_sample[-1] + self.num_rows[-1]) if len(self.num_rows) else 0


class Dataset(Protocol):
    """An opened source: how many samples there are, in which chunks they lie, the samples of a chunk."""

    @property
    def fingerprint(self) -> str:
        """Identity of the content (member names, sizes, order of shards), not of the place it lies in."""
        ...

    @property
    def chunks(self) -> ChunkTable: ...

    def read_chunk(self, chunk_index: int) -> list[RawSample | SampleError]:
        """Read one chunk: one entry per row, in order; a row that cannot be read is its error.

        Blocking; called from reading threads. Raises StorageError or ShardError if nothing of it can be read.
        """
        ...

    def origin(self, chunk_index: int, row: int) -> SampleOrigin:
        """Where row ``row`` of a chunk lies, for when the chunk cannot be read; its key may be unknown, then empty."""
        ...

    def describe(self) -> dict[str, Any]:
        """What a state or an error message shows: number of shards, samples, bytes, the patterns."""
        ...
