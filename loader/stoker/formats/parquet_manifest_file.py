"""The manifest of Parquet shards as a file: Parquet, a row per shard, the layouts as JSON in its metadata.

The URLs of the shards are relative to the manifest's folder where they lie below it, as in manifest_file.py.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stoker.formats.manifest import identity
from stoker.formats.parquet import broken_is_manifest_error, describe, open_parquet, read_described
from stoker.formats.parquet_footer import Layout
from stoker.formats.parquet_manifest import ParquetManifest, ParquetShard
from stoker.formats.stores import Stores

_SCHEMA = pa.schema(
    [
        pa.field("url", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("version", pa.string(), nullable=False),
        pa.field("digest", pa.string(), nullable=False),
        pa.field("layout", pa.int32(), nullable=False),
        pa.field("packed_footer", pa.large_binary(), nullable=False),
        pa.field("footer_bytes", pa.int64(), nullable=False),
        pa.field("group_rows", pa.large_list(pa.int32()), nullable=False),
        pa.field("leaf_start", pa.large_list(pa.int64()), nullable=False),
        pa.field("leaf_size", pa.large_list(pa.int64()), nullable=False),
    ]
)
_OFFSETS = ("leaf_start.list.element", "leaf_size.list.element")
_SHARDS_PER_GROUP = 4096


def encode(manifest_url: str, layouts: Sequence[Layout], shards: Sequence[ParquetShard]) -> bytes:
    """The manifest as a Parquet file for ``manifest_url``."""
    folder = manifest_url.rpartition("/")[0] + "/"
    columns = {name: [getattr(shard, name) for shard in shards] for name in _SCHEMA.names}
    columns["url"] = [identity(url).removeprefix(folder) for url in columns["url"]]
    arrays = [pa.array(columns[field.name], field.type) for field in _SCHEMA]
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        _SCHEMA,
        compression="zstd",
        use_dictionary=False,
        column_encoding=dict.fromkeys(_OFFSETS, "DELTA_BINARY_PACKED"),
        write_statistics=False,
        write_page_checksum=True,
    ) as writer:
        writer.write_table(pa.Table.from_arrays(arrays, schema=_SCHEMA), row_group_size=_SHARDS_PER_GROUP)
        writer.add_key_value_metadata(describe("parquet", {"layouts": [asdict(layout) for layout in layouts]}))
    return sink.getvalue()


def load(stores: Stores, url: str) -> ParquetManifest:
    """Read a manifest back. Raises ManifestError if it is none, StorageError if it cannot be read."""
    size_bytes = stores.of(url).head(url).size_bytes
    # Whole and at once, so that another process may replace it meanwhile.
    with broken_is_manifest_error(url), open_parquet(pa.BufferReader(stores.read(url, 0, size_bytes))) as file:
        layouts = tuple(_layout(entry) for entry in read_described(url, file, "parquet", _SCHEMA)["layouts"])
        columns = _columns(file.read(use_threads=False))
        folder = url.rpartition("/")[0] + "/"
        columns["url"] = [place if "://" in place else folder + place for place in columns["url"]]
        rows = zip(*(columns[field.name] for field in fields(ParquetShard)), strict=True)
        return ParquetManifest(url, layouts, tuple(ParquetShard(*row) for row in rows))


def _columns(table: pa.Table) -> dict[str, list[Any]]:
    """The values of each column; lists as arrays, all of a row group over the same memory."""
    found: dict[str, list[Any]] = {}
    for field in table.schema:
        column = table.column(field.name)
        found[field.name] = _arrays(column) if pa.types.is_large_list(field.type) else column.to_pylist()
    return found


def _arrays(column: pa.ChunkedArray) -> list[Any]:
    found = []
    for chunk in column.chunks:
        values, ends = chunk.values.to_numpy(), chunk.offsets.to_pylist()
        found += [values[ends[row] : ends[row + 1]] for row in range(len(chunk))]
    return found


def _layout(entry: dict[str, Any]) -> Layout:
    return Layout(tuple(entry["columns"]), tuple(entry["left_out"]), entry["key"], tuple(entry["leaves"]))
