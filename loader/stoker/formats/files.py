"""A data set with one sample per file, opened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
from stoker.storage.store import ObjectInfo, ObjectRange
from stoker.storage.urls import shown
from stoker.storage.use import Use

MAX_CHUNK_ROWS = 8
"""Files have no neighbours to be read with: small chunks mix as well, and fewer are read before the first batch."""

_READS_IN_FLIGHT = 32


class FilesDataset:
    """Reads runs of neighbouring files, those in a bucket at once. Safe for many threads."""

    def __init__(self, source: Files, stores: Stores, table: FileTable) -> None:
        self._source = source
        self._stores = stores
        self._table = table
        start = np.concatenate([np.zeros(1, np.int64), np.cumsum(table.size)])[:-1]
        ends = np.array([0, table.num_rows], np.int64)
        self._chunks = cut(start, table.size, ends, source.chunk_bytes, max_rows=MAX_CHUNK_ROWS)
        content = f"{table.digest} {source.chunk_bytes} {MAX_CHUNK_ROWS}"
        self._fingerprint = blake2b(content.encode(), digest_size=16).hexdigest()
        self._is_local = is_local(table.folder)

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
        """See :class:`stoker.formats.dataset.Dataset`; whole files, without the empty ones."""
        return [wanted for wanted in self._wanted(chunk_index) if wanted.num_bytes]

    def object_urls(self) -> Iterable[str]:
        return map(self._url, self._table.path.to_pylist())

    def object_at(self, index: int) -> ObjectInfo:
        path, version = self._table.path[index].as_py(), self._table.version[index].as_py()
        return ObjectInfo(self._url(path), int(self._table.size[index]), version or "")

    def read_chunk(self, chunk_index: int, use: Use | None = None) -> list[RawSample | SampleError]:
        ranges = self.ranges(chunk_index)
        uses = None if use is None else [use] * len(ranges)
        try:
            return self.parse(chunk_index, self._stores.read_many(ranges, uses))
        except StorageError:  # one of them at least; which ones is found out one by one
            return self._read_each(chunk_index)

    def parse(self, chunk_index: int, bodies: Sequence[memoryview]) -> list[RawSample | SampleError]:
        """See :class:`stoker.formats.dataset.Dataset`; a file has no checksum here."""
        left = iter(bodies)
        return [
            self._sample(path, next(left) if size_bytes else memoryview(b""), label)
            for path, size_bytes, label, _ in self._rows(chunk_index)
        ]

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

    def _rows(self, chunk_index: int) -> Iterator[tuple[str, int, str | None, str | None]]:
        """Path, size, label and version of each file of a chunk."""
        first, stop = self._chunks.rows(chunk_index)
        table = self._table
        columns = (table.path, table.label, table.version)
        paths, labels, versions = (column.slice(first, stop - first).to_pylist() for column in columns)
        return zip(paths, table.size[first:stop].tolist(), labels, versions, strict=True)

    def _wanted(self, chunk_index: int) -> list[ObjectRange]:
        return [
            self._stores.range(self._url(path), 0, size_bytes, version or "")
            for path, size_bytes, _, version in self._rows(chunk_index)
        ]

    def _read_each(self, chunk_index: int) -> list[RawSample | SampleError]:
        """The files of a chunk, each as itself or as its error. Raises the StorageError if all have one."""
        wanted = self._wanted(chunk_index)
        pool_size = 1 if self._is_local else min(len(wanted), _READS_IN_FLIGHT)
        with DaemonPool(pool_size, "stoker-files") as pool:
            bodies = list(pool.map(self._body, wanted))
        if all(isinstance(body, StorageError) for body in bodies):
            raise next(body for body in bodies if isinstance(body, StorageError))
        found: list[RawSample | SampleError] = []
        for (path, _, label, _), body in zip(self._rows(chunk_index), bodies, strict=True):
            if isinstance(body, StorageError):
                bad = SampleError(str(body), origin=SampleOrigin(shown(self._url(path)), 0, _key(path)))
                bad.__cause__ = body
                found.append(bad)
            else:
                found.append(self._sample(path, body, label))
        return found

    def _body(self, wanted: ObjectRange) -> memoryview | StorageError:
        try:
            return self._stores.read(wanted.url, 0, wanted.stop, wanted.version) if wanted.stop else memoryview(b"")
        except StorageError as error:
            return error

    def _sample(self, path: str, content: memoryview, label: str | None) -> RawSample:
        fields: dict[str, bytes | memoryview] = {extension_of(path): content}
        if label is not None:
            fields["cls"] = label.encode()
        return RawSample(SampleOrigin(shown(self._url(path)), 0, _key(path)), fields)

    def _url(self, path: str) -> str:
        return path if "://" in path else self._table.folder + path


def _key(path: str) -> str:
    return path.rpartition(".")[0]
