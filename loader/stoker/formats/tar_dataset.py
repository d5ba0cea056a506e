"""A data set in tar shards, opened."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from crc32c import crc32c

from stoker.errors import SampleError, SampleOrigin, ShardError
from stoker.formats import compressed
from stoker.formats.chunks import Chunks, cut
from stoker.formats.dataset import ChunkTable
from stoker.formats.keys import SPLITS
from stoker.formats.manifest import UNKNOWN_CRC, Manifest, Shard
from stoker.formats.shard_rows import doubled
from stoker.formats.source import Tar
from stoker.formats.stores import Stores
from stoker.formats.tar import TarError, members
from stoker.sample import RawSample
from stoker.storage.store import ObjectInfo, ObjectRange
from stoker.storage.urls import shown
from stoker.storage.use import Use

KEEP_GIL = 0
"""For crc32c: a row takes microseconds, and to get the GIL back from a busy thread would take longer."""


MAX_REREADS = 3
"""How often a row is read again whose checksum does not fit and is another one each time."""


class TarDataset:
    """Reads chunks of tar shards by range. Safe for many threads."""

    def __init__(self, source: Tar, stores: Stores, manifest: Manifest) -> None:
        self._source = source
        self._stores = stores
        self._shards = manifest.shards
        self._rows = manifest.rows
        self._first_rows = manifest.first_rows
        self._split = SPLITS[source.keys]
        whole = np.array([shard.encoding == "gzip" for shard in self._shards], np.bool_)
        self._chunks: Chunks = cut(
            self._rows.offset, self._rows.size, self._first_rows, source.chunk_bytes, whole if whole.any() else None
        )
        content = f"{manifest.content_digest} {source.chunk_bytes}"
        self._fingerprint = blake2b(content.encode(), digest_size=16).hexdigest()
        self._manifest_url = manifest.url

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    @property
    def chunks(self) -> ChunkTable:
        return self._chunks.table

    @property
    def stores(self) -> Stores:
        return self._stores

    def ranges(self, chunk_index: int) -> Sequence[ObjectRange]:
        """See :class:`stoker.formats.dataset.Dataset`; a gzip shard is read whole."""
        shard = self._shards[int(self._chunks.shard[chunk_index])]
        if shard.encoding == "gzip":
            return (self._stores.range(shard.url, 0, shard.size_bytes, shard.version),)
        first, stop = self._chunks.rows(chunk_index)
        start, end = int(self._rows.offset[first]), int(self._rows.offset[stop - 1]) + int(self._rows.size[stop - 1])
        return (self._stores.range(shard.url, start, end, shard.version),)

    def object_urls(self) -> Iterable[str]:
        return (shard.url for shard in self._shards)

    def object_at(self, index: int) -> ObjectInfo:
        shard = self._shards[index]
        return ObjectInfo(shard.url, shard.size_bytes, shard.version)

    def read_chunk(self, chunk_index: int, use: Use | None = None) -> list[RawSample | SampleError]:
        ranges = self.ranges(chunk_index)
        return self.parse(chunk_index, self._stores.read_many(ranges, None if use is None else [use]))

    def parse(self, chunk_index: int, bodies: Sequence[memoryview]) -> list[RawSample | SampleError]:
        """See :class:`stoker.formats.dataset.Dataset`."""
        shard_index = int(self._chunks.shard[chunk_index])
        shard = self._shards[shard_index]
        first, stop = self._chunks.rows(chunk_index)
        offsets = self._rows.offset[first:stop].tolist()
        sizes = self._rows.size[first:stop].tolist()
        crcs = self._rows.crc32c[first:stop].tolist()
        start, end = offsets[0], offsets[-1] + sizes[-1]
        content = self._unpacked(shard, start, end, bodies[0])
        row = first - int(self._first_rows[shard_index])
        url = shown(shard.url)
        samples: list[RawSample | SampleError] = []
        for offset, size, crc in zip(offsets, sizes, crcs, strict=True):
            run = content[offset - start : offset - start + size]
            if crc != UNKNOWN_CRC and (found := crc32c(run, gil_release_mode=KEEP_GIL)) != crc:
                run, found = self._read_until(chunk_index, offset, offset + size, crc, found)
                if found != crc:
                    samples.append(self._mismatch(url, row, run, crc, found))
                    row += 1
                    continue
            samples.append(self._sample(url, row, run, crc == UNKNOWN_CRC))
            row += 1
        return samples

    def origin(self, chunk_index: int, row: int) -> SampleOrigin:
        shard_index = int(self._chunks.shard[chunk_index])
        first = int(self._chunks.table.first_sample[chunk_index]) - int(self._first_rows[shard_index])
        return SampleOrigin(shown(self._shards[shard_index].url), first + row, "")

    def describe(self) -> dict[str, Any]:
        return {
            "source": "tar",
            "patterns": [shown(pattern) for pattern in self._source.patterns],
            "shards": len(self._shards),
            "samples": len(self._rows.offset),
            "bytes": sum(shard.size_bytes for shard in self._shards),
            "chunks": len(self._chunks.shard),
            "manifest": self._manifest_url,
        }

    def _read_until(self, chunk_index: int, start: int, stop: int, crc: int, found: int) -> tuple[memoryview, int]:
        """Read a row again until its checksum fits, or is the same wrong one twice: then it lies so in storage.

        Damage on the way is another one each time.
        """
        run, before = memoryview(b""), -1
        for _ in range(MAX_REREADS):
            if found in (crc, before):
                break
            before, run = found, self._read_again(chunk_index, start, stop)
            found = crc32c(run, gil_release_mode=KEEP_GIL)
        return run, found

    def _read_again(self, chunk_index: int, start: int, stop: int) -> memoryview:
        """Bytes of a chunk whose checksum did not fit, from where they lie."""
        shard = self._shards[int(self._chunks.shard[chunk_index])]
        (wanted,) = self.ranges(chunk_index)
        if shard.encoding == "gzip":
            return self._unpacked(shard, start, stop, self._stores.read_again(wanted))
        self._stores.forget(wanted)
        return self._unpacked(shard, start, stop, self._stores.read(shard.url, start, stop, shard.version))

    def _unpacked(self, shard: Shard, start: int, stop: int, body: memoryview) -> memoryview:
        """The bytes ``[start, stop)`` of the tar, in what was read for them. Raises ShardError if there are fewer."""
        content = compressed.inflate(shard.url, body)[0][start:stop] if shard.encoding == "gzip" else body
        if len(content) != stop - start:
            raise ShardError(
                f"{shown(shard.url)}: bytes {start} to {stop} were asked for, {len(content)} came; "
                "the shard is shorter than when it was indexed; open it again to index what changed"
            )
        return content

    def _sample(self, url: str, row: int, run: memoryview, verify: bool) -> RawSample | SampleError:
        """One row from its bytes; headers are verified if no checksum of the row was."""
        fields: dict[str, bytes | memoryview] = {}
        key = ""
        num_fields = 0
        try:
            found = members(run, verify=verify)
        except TarError as error:
            reason = f"{error.reason}; the shard has changed since it was indexed, or was damaged on its way"
            return SampleError(reason, origin=SampleOrigin(url, row, key))
        for name, body, size, _, problem in found:
            split = self._split(name)
            if split is None:
                continue
            key = split[0]
            if problem:
                return SampleError(problem, origin=SampleOrigin(url, row, key))
            fields[split[1]] = run[body : body + size]
            num_fields += 1
        origin = SampleOrigin(url, row, key)
        if num_fields == 0:
            return SampleError("no member with a field where the index says there is one", origin=origin)
        if num_fields != len(fields):
            return SampleError(f"field {self._doubled(found)}", origin=origin)
        return RawSample(origin, fields)

    def _doubled(self, found: list[Any]) -> str:
        splits = [(member.name, self._split(member.name)) for member in found]
        return doubled([(name, split[1]) for name, split in splits if split is not None])

    def _mismatch(self, url: str, row: int, run: memoryview, expected: int, found: int) -> SampleError:
        try:
            splits = [self._split(member.name) for member in members(run)]
        except TarError:
            splits = []
        key = next((split[0] for split in splits if split is not None), "")
        reason = (
            f"read again, and its checksum is {found:#010x} where the index has {expected:#010x}: damaged in storage, "
            "or changed since it was indexed; open the data set again to index what changed"
        )
        return SampleError(reason, origin=SampleOrigin(url, row, key))
