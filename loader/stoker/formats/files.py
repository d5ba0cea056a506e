"""A data set with one sample per file, opened."""

from __future__ import annotations

import os
import threading
from hashlib import blake2b
from typing import Any

import numpy as np

from stoker.errors import SampleError, SampleOrigin, StorageError
from stoker.formats.chunks import cut
from stoker.formats.dataset import ChunkTable
from stoker.formats.file_table import FileTable
from stoker.formats.folder_listing import extension_of
from stoker.formats.source import Files
from stoker.formats.stores import Stores, is_local
from stoker.sample import RawSample
from stoker.storage.daemon_pool import DaemonPool
from stoker.storage.urls import shown

MAX_CHUNK_ROWS = 64
_READS_IN_FLIGHT = 32


class FilesDataset:
    """Reads runs of neighbouring files; those in a bucket several at once. Safe for many threads."""

    def __init__(self, source: Files, stores: Stores, table: FileTable) -> None:
        self._source = source
        self._stores = stores
        self._table = table
        start = np.concatenate([np.zeros(1, np.int64), np.cumsum(table.size)])[:-1]
        ends = np.array([0, table.num_rows], np.int64)
        self._chunks = cut(start, table.size, ends, source.chunk_bytes, max_rows=MAX_CHUNK_ROWS)
        content = f"{table.digest} {source.chunk_bytes}"
        self._fingerprint = blake2b(content.encode(), digest_size=16).hexdigest()
        self._is_local = is_local(table.folder)
        self._lock = threading.Lock()
        self._pools: dict[int, DaemonPool] = {}

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    @property
    def chunks(self) -> ChunkTable:
        return self._chunks.table

    def read_chunk(self, chunk_index: int) -> list[RawSample | SampleError]:
        first, stop = self._chunks.rows(chunk_index)
        paths = self._table.path.slice(first, stop - first).to_pylist()
        sizes = self._table.size[first:stop].tolist()
        labels = self._table.label.slice(first, stop - first).to_pylist()
        if self._is_local or len(paths) == 1:
            found = [self._read(*row) for row in zip(paths, sizes, labels, strict=True)]
        else:
            found = list(self._pool().map(self._read, paths, sizes, labels))
        if all(isinstance(sample, SampleError) and isinstance(sample.__cause__, StorageError) for sample in found):
            raise _cause(found[0])
        return found

    def origin(self, chunk_index: int, row: int) -> SampleOrigin:
        path = self._table.path[int(self._chunks.table.first_sample[chunk_index]) + row].as_py()
        return SampleOrigin(shown(self._url(path)), 0, _key(path))

    def describe(self) -> dict[str, Any]:
        return {
            "source": "files",
            "url": shown(self._source.url),
            "samples": self._table.num_rows,
            "bytes": self._table.num_bytes,
            "chunks": len(self._chunks.shard),
            "classes": len(self._table.classes),
            "manifest": self._table.url,
        }

    @property
    def classes(self) -> tuple[str, ...]:
        """The class folders' names; the field ``cls`` is the number of one of them."""
        return self._table.classes

    def _read(self, path: str, size_bytes: int, label: str | None) -> RawSample | SampleError:
        url = self._url(path)
        origin = SampleOrigin(shown(url), 0, _key(path))
        try:
            content = self._stores.read(url, 0, size_bytes) if size_bytes else memoryview(b"")
        except StorageError as error:
            bad = SampleError(str(error), origin=origin)
            bad.__cause__ = error
            return bad
        fields: dict[str, bytes | memoryview] = {extension_of(path): content}
        if label is not None:
            fields["cls"] = label.encode()
        return RawSample(origin, fields)

    def _url(self, path: str) -> str:
        return path if "://" in path else self._table.folder + path

    def _pool(self) -> DaemonPool:
        """The reading threads of this process: a fork has none of its parent's."""
        with self._lock:
            pool = self._pools.get(os.getpid())
            if pool is None:
                pool = self._pools[os.getpid()] = DaemonPool(_READS_IN_FLIGHT, "stoker-files")
            return pool


def _key(path: str) -> str:
    return path.rpartition(".")[0]


def _cause(sample: RawSample | SampleError) -> BaseException:
    return sample.__cause__ if isinstance(sample, SampleError) and sample.__cause__ is not None else StorageError()
