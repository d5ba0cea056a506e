"""The listing of a data set with one sample per file, as it is held and as it is kept."""

from __future__ import annotations

import io
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from stoker.formats.manifest import Shard
from stoker.formats.parquet import broken_is_manifest_error, describe, open_parquet, read_described
from stoker.formats.remote_file import RemoteFile
from stoker.formats.stores import Stores

_HASHED_ROWS = 1 << 16

SCHEMA = pa.schema(
    [
        pa.field("path", pa.large_string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("label", pa.string()),
        pa.field("version", pa.large_string()),
    ]
)

Stamp = dict[str, Any]
"""What tells whether a kept listing is still true: see stamp.py."""


@dataclass(frozen=True, slots=True)
class FileTable:
    """All files, in order. ``path`` is relative to ``folder`` (which ends in a slash), or a full URL.

    ``label`` is the text of the field ``cls``, None for a file without one. ``version`` is None for local files, whose
    listing is to stay small. ``url`` is where the listing is kept.
    """

    url: str
    folder: str
    path: pa.LargeStringArray
    size: NDArray[np.int64]
    label: pa.StringArray
    version: pa.LargeStringArray
    classes: tuple[str, ...]
    stamp: Stamp
    digest: str
    notices: tuple[str, ...] = ()

    @property
    def num_rows(self) -> int:
        return len(self.size)

    @property
    def num_bytes(self) -> int:
        return int(self.size.sum())

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The folder, as if it were one shard, for summaries."""
        num_bytes = self.num_bytes
        return (Shard(self.folder, num_bytes, "", self.num_rows, self.digest, "tar", num_bytes),)


def make_table(folder: str, rows: pa.Table, classes: tuple[str, ...], stamp: Stamp) -> FileTable:
    """A table from the columns of ``SCHEMA``, not kept anywhere yet."""
    path, size, label, version = _columns(rows)
    return FileTable("", folder, path, size, label, version, classes, stamp, _digest(path, size, label))


def encode(url: str, table: FileTable) -> bytes:
    """The listing as a Parquet file for ``url``."""
    sink = io.BytesIO()
    rows = pa.Table.from_arrays([table.path, pa.array(table.size), table.label, table.version], schema=SCHEMA)
    content = {
        "folder": _relative(url, table.folder),
        "classes": table.classes,
        "stamp": table.stamp,
        "digest": table.digest,
    }
    with pq.ParquetWriter(
        sink, SCHEMA, compression="zstd", use_dictionary=["label"], write_page_checksum=True
    ) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata(describe("files", content))
    return sink.getvalue()


def load(stores: Stores, url: str) -> FileTable:
    """Read a listing back. Raises ManifestError if it is none, StorageError if it cannot be read."""
    size_bytes = stores.of(url).head(url).size_bytes
    with broken_is_manifest_error(url), open_parquet(RemoteFile(stores, url, size_bytes)) as file:
        content = read_described(url, file, "files", SCHEMA)
        rows = file.read(use_threads=False)
        folder = content["folder"] or url.rpartition("/")[0] + "/"
        return FileTable(url, folder, *_columns(rows), tuple(content["classes"]), content["stamp"], content["digest"])


def _columns(rows: pa.Table) -> tuple[pa.LargeStringArray, NDArray[np.int64], pa.StringArray, pa.LargeStringArray]:
    path, label, version = (_whole(rows.column(name)) for name in ("path", "label", "version"))
    return path, rows.column("size").to_numpy(), label, version


def _relative(url: str, folder: str) -> str:
    """Empty for a listing that lies in the folder itself, so that both can be moved."""
    return "" if url.rpartition("/")[0] + "/" == folder else folder


def _digest(path: pa.LargeStringArray, size: NDArray[np.int64], label: pa.StringArray) -> str:
    hasher = blake2b(b"files\n", digest_size=16)
    for start in range(0, len(size), _HASHED_ROWS):
        names, labels = path.slice(start, _HASHED_ROWS).to_pylist(), label.slice(start, _HASHED_ROWS).to_pylist()
        sizes = size[start : start + _HASHED_ROWS].tolist()
        rows = zip(names, sizes, labels, strict=True)
        hasher.update("".join(f"{name}\0{num_bytes}\0{text}\n" for name, num_bytes, text in rows).encode())
    return hasher.hexdigest()


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays([*column.chunks, pa.array([], column.type)])
