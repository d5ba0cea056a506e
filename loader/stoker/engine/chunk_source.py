"""Where readers get the content of chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from stoker.engine.feed import ChunkUse, Feed
from stoker.engine.future import Future
from stoker.engine.prefetch import Prefetcher
from stoker.engine.retries import RetryTally
from stoker.errors import DataError, StorageError
from stoker.formats.dataset import ChunkContent, Dataset
from stoker.storage.ranges import JOIN_MAX_BYTES
from stoker.storage.store import ObjectRange
from stoker.storage.use import Use


class ChunkSource(Protocol):
    """What :class:`stoker.engine.readers.Readers` reads through; its threads call it at once."""

    def runs_on(self, before: Sequence[ChunkUse], use: ChunkUse) -> bool:
        """Whether ``use`` should be read in one request with those before it."""
        ...

    def read(self, uses: Sequence[ChunkUse]) -> list[ChunkContent]:
        """The content of each chunk, or why it could not be read. Blocking."""
        ...

    def close(self) -> None:
        """Nothing more will be read; what runs ahead of the reads ends. Does not wait."""
        ...


class DatasetChunks:
    """Chunks of a data set, from the cache, a peer, or where they lie; neighbours in one request.

    With a ``future`` each read says when the next one is, and with a ``prefetcher`` others run ahead of it.
    """

    def __init__(self, dataset: Dataset, future: Future | None = None, prefetcher: Prefetcher | None = None) -> None:
        self._dataset = dataset
        self._future = future
        self._prefetcher = prefetcher

    def runs_on(self, before: Sequence[ChunkUse], use: ChunkUse) -> bool:
        """See :class:`ChunkSource`."""
        if use.chunk_index != before[-1].chunk_index + 1:
            return False
        first, last = self._only_range(before[0]), self._only_range(use)
        return (
            first is not None
            and last is not None
            and (first.url, first.version) == (last.url, last.version)
            and last.stop - first.start <= JOIN_MAX_BYTES
        )

    def read(self, uses: Sequence[ChunkUse]) -> list[ChunkContent]:
        """See :class:`ChunkSource`."""
        if len(uses) == 1:
            return [self._read_one(uses[0])]
        ranges = [self._dataset.ranges(use.chunk_index)[0] for use in uses]
        times = [self._time(use) for use in uses]
        try:
            bodies = self._dataset.stores.read_many(ranges, [time for time in times if time is not None] or None)
        except StorageError:  # of one of them at least; each is to have its own
            return [self._read_one(use) for use in uses]
        return [self._parsed(use, body) for use, body in zip(uses, bodies, strict=True)]

    def _read_one(self, use: ChunkUse) -> ChunkContent:
        try:
            return self._dataset.read_chunk(use.chunk_index, self._time(use))
        except (StorageError, DataError) as error:
            return error

    def _time(self, use: ChunkUse) -> Use | None:
        if self._future is None:
            return None
        found = self._future.use(use)
        if self._prefetcher is not None:
            self._prefetcher.moved(found, int(self._dataset.chunks.size_bytes[use.chunk_index]))
        return found

    def close(self) -> None:
        """See :class:`ChunkSource`."""
        if self._prefetcher is not None:
            self._prefetcher.close()

    def _parsed(self, use: ChunkUse, body: memoryview) -> ChunkContent:
        try:
            return self._dataset.parse(use.chunk_index, [body])
        except (StorageError, DataError) as error:
            return error

    def _only_range(self, use: ChunkUse) -> ObjectRange | None:
        """What a chunk is read of, if that is one range."""
        ranges = self._dataset.ranges(use.chunk_index)
        return ranges[0] if len(ranges) == 1 else None


def chunks_of(dataset: Dataset, feed: Feed, tally: RetryTally, *, all_ranks: bool = False) -> ChunkSource:
    """The chunks of a pipeline's data, for one rank of it, or for the workers that make the batches of all ranks."""
    rank = feed.deal.rank
    job = feed.pipeline.fingerprint if all_ranks else f"{feed.pipeline.fingerprint}/{rank.index}/{rank.world_size}"
    future = Future(feed, job, all_ranks=all_ranks)
    prefetcher = Prefetcher(dataset, future, tally.stats) if dataset.stores.cache_bytes else None
    return DatasetChunks(dataset, future, prefetcher)
