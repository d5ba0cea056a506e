"""A data set in Parquet shards, opened."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stoker.errors import SampleError, SampleOrigin, ShardError
from stoker.formats import parquet_groups
from stoker.formats.dataset import ChunkTable
from stoker.formats.parquet_footer import metadata_of
from stoker.formats.parquet_manifest import ParquetManifest, ParquetShard
from stoker.formats.parquet_rows import read_group, samples_of
from stoker.formats.source import Parquet
from stoker.formats.sparse_file import SparseFile
from stoker.formats.stores import Stores
from stoker.sample import RawSample
from stoker.storage.store import ObjectInfo, ObjectRange
from stoker.storage.urls import shown
from stoker.storage.use import Use

_DAMAGED = (pa.ArrowException, OSError, ValueError)
"""What pyarrow raises over bytes that it cannot read."""

HELD_FOOTER_BYTES = 32 << 20

MAX_REREADS = 3
"""How often a row group is read again that is damaged, and differently each time."""


class ParquetDataset:
    """Reads row groups of Parquet shards, of each the columns that are wanted. Safe for many threads.

    Raises SpecError for a column that a shard lacks.
    """

    def __init__(self, source: Parquet, stores: Stores, manifest: ParquetManifest) -> None:
        self._source = source
        self._stores = stores
        self._manifest = manifest
        self._choices = parquet_groups.choices(manifest, source.columns)
        self._groups = parquet_groups.cut(manifest, self._choices)
        content = f"{manifest.content_digest} {source.columns}"
        self._fingerprint = blake2b(content.encode(), digest_size=16).hexdigest()
        self._footers = _Footers(manifest.shards)

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    @property
    def chunks(self) -> ChunkTable:
        return self._groups.table

    @property
    def stores(self) -> Stores:
        return self._stores

    def ranges(self, chunk_index: int) -> Sequence[ObjectRange]:
        """See :class:`stoker.formats.dataset.Dataset`; columns that are neighbours are one range."""
        shard = self._shard(chunk_index)
        choice, group = self._choices[shard.layout], int(self._groups.number[chunk_index])
        found = parquet_groups.ranges(shard, choice, group)
        return [self._stores.range(shard.url, start, stop, shard.version) for start, stop in found]

    def object_urls(self) -> Iterable[str]:
        return (shard.url for shard in self._manifest.shards)

    def object_at(self, index: int) -> ObjectInfo:
        shard = self._manifest.shards[index]
        return ObjectInfo(shard.url, shard.size_bytes, shard.version)

    def read_chunk(self, chunk_index: int, use: Use | None = None) -> list[RawSample | SampleError]:
        wanted = self.ranges(chunk_index)
        return self.parse(chunk_index, self._stores.read_many(wanted, None if use is None else [use] * len(wanted)))

    def parse(self, chunk_index: int, bodies: Sequence[memoryview]) -> list[RawSample | SampleError]:
        """See :class:`stoker.formats.dataset.Dataset`; damage costs the row group, as a page is about as large."""
        wanted = self.ranges(chunk_index)
        damage: Exception | None = None
        before: list[memoryview] = []
        for reads_left in range(MAX_REREADS, -1, -1):
            try:
                return self._parsed(chunk_index, wanted, bodies)
            except _DAMAGED as error:
                damage = error
            if not reads_left or before == list(bodies):  # damage on the way is another one each time
                break
            before, bodies = list(bodies), [self._stores.read_again(one) for one in wanted]
        raise ShardError(
            f"{shown(self._shard(chunk_index).url)}: row group {self._groups.number[chunk_index]}, bytes "
            f"{wanted[0].start} to {wanted[-1].stop}, was read again and is damaged ({damage}); make or upload the "
            "shard again, or open the data set again if it was changed since it was indexed"
        ) from damage

    def origin(self, chunk_index: int, row: int) -> SampleOrigin:
        first = int(self._groups.first_row[chunk_index])
        return SampleOrigin(shown(self._shard(chunk_index).url), first + row, "")

    def describe(self) -> dict[str, Any]:
        return {
            "source": "parquet",
            "patterns": [shown(pattern) for pattern in self._source.patterns],
            "shards": len(self._manifest.shards),
            "samples": self.chunks.num_samples,
            "bytes": sum(shard.size_bytes for shard in self._manifest.shards),
            "chunks": len(self._groups.shard),
            "manifest": self._manifest.url,
        }

    def _shard(self, chunk_index: int) -> ParquetShard:
        return self._manifest.shards[int(self._groups.shard[chunk_index])]

    def _parsed(
        self, chunk_index: int, wanted: Sequence[ObjectRange], bodies: Sequence[memoryview]
    ) -> list[RawSample | SampleError]:
        shard = self._shard(chunk_index)
        choice, group = self._choices[shard.layout], int(self._groups.number[chunk_index])
        file = SparseFile(shard.size_bytes, [one.start for one in wanted], bodies)
        footer = self._footers.of(int(self._groups.shard[chunk_index]))
        table = read_group(file, footer, group, choice)
        return samples_of(table, choice, shown(shard.url), int(self._groups.first_row[chunk_index]))


class _Footers:
    """The footers that were used last, parsed: those of the shards a window reads from. Safe for many threads."""

    def __init__(self, shards: Sequence[ParquetShard]) -> None:
        self._shards = shards
        self._lock = threading.Lock()
        self._held: OrderedDict[int, pq.FileMetaData] = OrderedDict()
        self._held_bytes = 0

    def of(self, shard_index: int) -> pq.FileMetaData:
        with self._lock:
            found = self._held.get(shard_index)
            if found is not None:
                self._held.move_to_end(shard_index)
                return found
        shard = self._shards[shard_index]
        found = metadata_of(shard.footer)
        with self._lock:
            if shard_index not in self._held:
                self._held[shard_index] = found
                self._held_bytes += shard.footer_bytes
            while self._held_bytes > HELD_FOOTER_BYTES and len(self._held) > 1:
                oldest, _ = self._held.popitem(last=False)
                self._held_bytes -= self._shards[oldest].footer_bytes
        return found
