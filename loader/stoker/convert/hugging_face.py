"""Records of Hugging Face data sets: the Arrow files of ``save_to_disk``, or Parquet files as on the hub."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from stoker.convert import arrow_stream
from stoker.convert.arrow_values import class_names, converters, row_values
from stoker.convert.fields import Content, Value, to_bytes, to_fields
from stoker.convert.records import Survey, joined, mean_sizes
from stoker.convert.source_files import digest_of, read
from stoker.errors import SampleError, SampleOrigin, ShardError, StorageError
from stoker.formats.parquet_columns import KEY_COLUMN
from stoker.formats.remote_file import RemoteFile
from stoker.formats.stores import Stores
from stoker.sample import RawSample
from stoker.storage.store import ObjectInfo
from stoker.storage.urls import shown

_READ_BYTES = 8 << 20
_PARQUET_END = b"PAR1"


@dataclass(frozen=True, slots=True)
class _Part:
    """A batch of an Arrow file or a row group of a Parquet file; ``first_row`` counts in the file."""

    file: int
    number: int
    first_row: int
    num_rows: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class _ArrowFile:
    before: bytes
    stream: arrow_stream.Stream
    schema: pa.Schema


_File: TypeAlias = "_ArrowFile | Any"  # else Parquet's own metadata


class HuggingFaceRecords:
    """Batches and row groups as parts: each is read whole, but for the columns that are left out of Parquet."""

    kind = "hugging-face"
    costs_whole_parts = True

    def __init__(
        self, stores: Stores, folder: str, entries: Sequence[ObjectInfo], columns: Sequence[str] | None = None
    ) -> None:
        self._stores = stores
        self._entries = list(entries)
        self._columns = columns
        self.digest = digest_of(self.kind, folder, self._entries)
        self.classes: Mapping[str, Sequence[str]] = {}
        self._files: list[_File] = []
        self._parts: list[_Part] = []

    def survey(self, pool: Executor) -> Survey:
        self._files = list(pool.map(self._open, self._entries))
        self._parts = [part for number, file in enumerate(self._files) for part in _parts(number, file)]
        schemas = [_schema(file) for file in self._files]
        for entry, schema in zip(self._entries, schemas, strict=True):
            converters(shown(entry.url), schema, self._columns)
            self.classes = self.classes or class_names(schema)
        sizes: list[NDArray[np.int64]] = [mean_sizes(part.num_rows, part.num_bytes) for part in self._parts]
        return joined(sizes)

    def read(self, part: int, rows: Sequence[int]) -> Iterator[RawSample | SampleError]:
        place = self._parts[part]
        url = shown(self._entries[place.file].url)
        schema = _schema(self._files[place.file])
        convert = converters(url, schema, self._columns)
        is_ours = KEY_COLUMN in schema.names
        batch = self._batch(place, sorted({*convert, KEY_COLUMN}) if is_ours else list(convert))
        columns = {name: batch.column(name) for name in convert if name != KEY_COLUMN}
        for row in rows:
            key = str(batch.column(KEY_COLUMN)[row]) if is_ours else ""
            origin = SampleOrigin(url, place.first_row + row, key)
            try:
                values = row_values(columns, convert, row)
                yield RawSample(origin, _named_already(values) if is_ours else to_fields(values))
            except SampleError as error:
                yield error.at(origin)
            except (pa.ArrowException, ValueError, OverflowError) as error:
                yield SampleError(f"a value cannot be read: {error}", origin=origin)

    def _open(self, entry: ObjectInfo) -> _File:
        url = entry.url
        size = entry.size_bytes
        is_parquet = size >= len(_PARQUET_END) and bytes(self._read(entry, 0, len(_PARQUET_END))) == _PARQUET_END
        try:
            if is_parquet:
                return pq.read_metadata(self._file(entry))
            stream = arrow_stream.scan(shown(url), lambda start, stop: self._read(entry, start, stop), size)
            before = b"".join(self._read(entry, *span) for span in stream.before)
            return _ArrowFile(before, stream, pa.ipc.open_stream(pa.py_buffer(before)).schema)
        except StorageError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise ShardError(f"{shown(url)} is damaged, or no Arrow or Parquet file: {error}") from error

    def _batch(self, part: _Part, columns: list[str]) -> pa.Table:
        entry, file = self._entries[part.file], self._files[part.file]
        try:
            if isinstance(file, _ArrowFile):
                place = file.stream.batches[part.number]
                body = self._read(entry, place.start, place.stop)
                with pa.ipc.open_stream(pa.py_buffer(b"".join((file.before, body)))) as reader:
                    return pa.Table.from_batches([reader.read_next_batch()]).combine_chunks()
            source = io.BufferedReader(self._file(entry), _READ_BYTES)
            with pq.ParquetFile(source, metadata=file, pre_buffer=False, page_checksum_verification=True) as parquet:
                return parquet.read_row_group(part.number, columns=columns, use_threads=False).combine_chunks()
        except StorageError:
            raise
        except (pa.ArrowException, OSError, StopIteration) as error:
            raise ShardError(f"{shown(entry.url)}, rows from {part.first_row} on: {error}") from error

    def _read(self, entry: ObjectInfo, start: int, stop: int) -> memoryview:
        return read(self._stores, entry, start, stop)

    def _file(self, entry: ObjectInfo) -> RemoteFile:
        return RemoteFile(self._stores, entry.url, entry.size_bytes)


def _named_already(values: Mapping[str, Value | None]) -> dict[str, Content]:
    """The columns of a shard that Stoker has written are fields as they are."""
    return {name: to_bytes(name, value) for name, value in values.items() if value is not None}


def _schema(file: _File) -> pa.Schema:
    return file.schema if isinstance(file, _ArrowFile) else file.schema.to_arrow_schema()


def _parts(number: int, file: _File) -> Iterator[_Part]:
    first_row = 0
    if isinstance(file, _ArrowFile):
        for index, batch in enumerate(file.stream.batches):
            yield _Part(number, index, first_row, batch.num_rows, batch.stop - batch.start)
            first_row += batch.num_rows
        return
    for index in range(file.num_row_groups):
        group = file.row_group(index)
        yield _Part(number, index, first_row, group.num_rows, group.total_byte_size)
        first_row += group.num_rows
