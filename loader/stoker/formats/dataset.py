"""What a source is once it is opened."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stoker.errors import DataError, SampleError, SampleOrigin, StorageError
from stoker.formats.stores import Stores
from stoker.sample import RawSample
from stoker.storage.store import ObjectInfo, ObjectRange
from stoker.storage.use import Use


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


ChunkContent = list[RawSample | SampleError] | StorageError | DataError
"""The samples of a chunk, or why it could not be read."""


class Dataset(Protocol):
    """An opened source: how many samples there are, in which chunks they lie, the samples of a chunk."""

    @property
    def fingerprint(self) -> str:
        """Identity of the content (member names, sizes, order of shards), not of the place it lies in."""
        ...

    @property
    def chunks(self) -> ChunkTable: ...

    @property
    def stores(self) -> Stores:
        """Where its objects lie."""
        ...

    def ranges(self, chunk_index: int) -> Sequence[ObjectRange]:
        """What is read of which objects for one chunk; the ranges of a chunk share no object or do not overlap."""
        ...

    def object_urls(self) -> Iterable[str]:
        """The objects that it reads, in the order of its index."""
        ...

    def object_at(self, index: int) -> ObjectInfo:
        """One of them, as its index knows it."""
        ...

    def parse(self, chunk_index: int, bodies: Sequence[memoryview]) -> list[RawSample | SampleError]:
        """The samples in what was read of ``ranges(chunk_index)``: one entry per row, in order.

        A row that is damaged is read again, and is its error if that does not help. The bodies are not to change
        any more. Raises ShardError if nothing of it can be used.
        """
        ...

    def read_chunk(self, chunk_index: int, use: Use | None = None) -> list[RawSample | SampleError]:
        """Read one chunk: one entry per row, in order; a row that cannot be read is its error.

        Blocking; called from reading threads. With ``use`` a cache or another worker may give it. Raises StorageError
        or ShardError if nothing of it can be read.
        """
        ...

    def origin(self, chunk_index: int, row: int) -> SampleOrigin:
        """Where row ``row`` of a chunk lies, for when the chunk cannot be read; its key may be unknown, then empty."""
        ...

    def describe(self) -> dict[str, Any]:
        """What a state or an error message shows: number of shards, samples, bytes, the patterns."""
        ...
