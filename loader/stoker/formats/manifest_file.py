"""The manifest of tar shards as a file: Parquet, a row per sample, the shards as JSON in its metadata.

The URLs of the shards are relative to the manifest's folder where they lie below it, so that a folder can be moved with
its manifest.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from stoker.formats.keys import KeyRule
from stoker.formats.manifest import ROW_SCHEMA, Manifest, Rows, Shard, first_rows, identity, known_crcs
from stoker.formats.parquet import ManifestError, broken_is_manifest_error, describe, open_parquet, read_described
from stoker.formats.remote_file import RemoteFile
from stoker.formats.stores import Stores

_FILE_SCHEMA = pa.schema([pa.field("shard", pa.int32(), nullable=False), *ROW_SCHEMA])
_ROWS_PER_GROUP = 1 << 19
_LOAD_TRIES = 3


def encode(manifest_url: str, keys: KeyRule, shards: Sequence[Shard], rows: Iterable[pa.RecordBatch]) -> bytes:
    """The manifest as a Parquet file. ``rows`` has one batch of :data:`ROW_SCHEMA` per shard, in order."""
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        _FILE_SCHEMA,
        compression="zstd",
        use_dictionary=["fields.list.element", "shard"],
        column_encoding={"offset": "DELTA_BINARY_PACKED", "size": "DELTA_BINARY_PACKED", "crc32c": "PLAIN"},
        write_statistics=False,
        write_page_checksum=True,
    ) as writer:
        for table in _groups(rows):
            writer.write_table(table, row_group_size=_ROWS_PER_GROUP)
        writer.add_key_value_metadata(describe("tar", _described(manifest_url, keys, shards)))
    return sink.getvalue()


def load(stores: Stores, url: str) -> Manifest:
    """Read a manifest back. Raises ManifestError if it is none, StorageError if it cannot be read."""
    for _ in range(_LOAD_TRIES):
        before = stores.of(url).head(url)
        with broken_is_manifest_error(url), open_parquet(RemoteFile(stores, url, before.size_bytes)) as file:
            keys, shards = _parse_described(url, file)
            rows = _read_rows(file)
        if stores.of(url).head(url) == before:  # else another process replaced it in between
            return Manifest(url, keys, shards, rows)
    raise ManifestError(f"{url}: it was replaced again and again while it was read")


class StoredRows:
    """A manifest's rows with all columns, read forwards a row group at a time, and the shards they belong to.

    The file is in memory, so that another process may replace it meanwhile. All of it is read once at the opening: the
    rows go into a new manifest, so damage must be known before. Raises ManifestError and StorageError as :func:`load`.
    """

    def __init__(self, stores: Stores, url: str) -> None:
        size_bytes = stores.of(url).head(url).size_bytes
        with broken_is_manifest_error(url):
            self._file = open_parquet(pa.BufferReader(stores.read(url, 0, size_bytes)))
            self.keys, self.shards = _parse_described(url, self._file)
            for group in range(self._file.num_row_groups):
                self._file.read_row_group(group, use_threads=False)
        self._first_rows = first_rows(self.shards).tolist()
        self._group_index = -1
        self._group_start = 0
        self._group = _FILE_SCHEMA.empty_table()

    def shard_rows(self, shard_index: int) -> pa.RecordBatch:
        """The rows of one shard as one batch of :data:`ROW_SCHEMA`; cheap if shards are asked for in order."""
        return self._take(self._first_rows[shard_index], self.shards[shard_index].num_rows)

    def _take(self, first: int, num_rows: int) -> pa.RecordBatch:
        parts = []
        position = first
        while position < first + num_rows:
            self._seek(position)
            start = position - self._group_start
            part = self._group.slice(start, first + num_rows - position)
            parts.append(part)
            position += len(part)
        table = pa.concat_tables(parts) if parts else _FILE_SCHEMA.empty_table()
        return one_batch(table.select(ROW_SCHEMA.names))

    def _seek(self, row: int) -> None:
        if row < self._group_start:
            self._group_index, self._group_start, self._group = -1, 0, _FILE_SCHEMA.empty_table()
        while row >= self._group_start + len(self._group):
            self._group_start += len(self._group)
            self._group_index += 1
            self._group = self._file.read_row_group(self._group_index, use_threads=False)


def field_counts(stores: Stores, manifest: Manifest) -> dict[str, int]:
    """How many rows have each field, most frequent first."""
    counts: dict[str, int] = {}
    with open_parquet(RemoteFile(stores, manifest.url, stores.of(manifest.url).head(manifest.url).size_bytes)) as file:
        for group in range(file.num_row_groups):
            column = file.read_row_group(group, columns=["fields"], use_threads=False).column("fields")
            for chunk in column.chunks:
                for entry in chunk.flatten().value_counts().to_pylist():
                    counts[entry["values"]] = counts.get(entry["values"], 0) + entry["counts"]
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _groups(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    num_waiting = 0
    for shard_index, batch in enumerate(rows):
        shard = pa.array(np.full(len(batch), shard_index, np.int32))
        waiting.append(pa.RecordBatch.from_arrays([shard, *batch.columns], schema=_FILE_SCHEMA))
        num_waiting += len(batch)
        if num_waiting >= _ROWS_PER_GROUP:
            yield pa.Table.from_batches(waiting)
            waiting, num_waiting = [], 0
    if num_waiting:
        yield pa.Table.from_batches(waiting)


def _described(manifest_url: str, keys: KeyRule, shards: Sequence[Shard]) -> dict[str, Any]:
    folder = manifest_url.rpartition("/")[0] + "/"
    placed = [replace(shard, url=identity(shard.url).removeprefix(folder)) for shard in shards]
    return {"keys": keys, "shards": [asdict(shard) for shard in placed]}


def _parse_described(url: str, file: pq.ParquetFile) -> tuple[KeyRule, tuple[Shard, ...]]:
    described = read_described(url, file, "tar", _FILE_SCHEMA)
    folder = url.rpartition("/")[0] + "/"
    names = [field.name for field in fields(Shard)]
    shards = []
    for entry in described["shards"]:
        values = {name: entry[name] for name in names}
        values["notices"] = tuple(values["notices"])
        values["url"] = entry["url"] if "://" in entry["url"] else folder + entry["url"]
        shards.append(Shard(**values))
    num_rows = sum(shard.num_rows for shard in shards)
    if num_rows != file.metadata.num_rows:
        raise ManifestError(f"{url}: {file.metadata.num_rows} rows, but its shards have {num_rows}")
    return described["keys"], tuple(shards)


def _read_rows(file: pq.ParquetFile) -> Rows:
    """Row group by row group into arrays of the final size, so that no second copy is ever whole."""
    num_rows = file.metadata.num_rows
    offset = np.empty(num_rows, np.int64)
    size: NDArray[np.uint32] | NDArray[np.int64] = np.empty(num_rows, np.uint32)
    crc32c = np.empty(num_rows, np.uint32)
    start = 0
    for group in range(file.num_row_groups):
        table = file.read_row_group(group, columns=["offset", "size", "crc32c"], use_threads=False)
        stop = start + len(table)
        offset[start:stop] = table.column("offset").to_numpy()
        sizes = table.column("size").to_numpy()
        if size.dtype == np.uint32 and len(sizes) and sizes.max() >> 32:
            size = size.astype(np.int64)
        size[start:stop] = sizes
        crc32c[start:stop] = known_crcs(table.column("crc32c"))
        start = stop
    return Rows(offset, size, crc32c)
