"""Records of MosaicML's MDS folders: ``index.json`` beside shards, raw or compressed.

A shard: the number of samples, where each begins and the last ends (uint32 each), its description, the samples.
A sample: the sizes of the columns that have no fixed one (uint32 each), then the columns.
"""

from __future__ import annotations

import bz2
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stoker.convert.fields import to_fields
from stoker.convert.mds_encodings import Decode, decoder, field_name
from stoker.convert.records import Survey, joined, mean_sizes
from stoker.convert.runs import runs
from stoker.convert.source_files import digest_of, list_folder, read, read_whole
from stoker.errors import NotFoundError, SampleError, SampleOrigin, ShardError, SpecError
from stoker.formats.stores import Stores
from stoker.sample import RawSample
from stoker.storage.store import ObjectInfo
from stoker.storage.urls import shown

_ARROW_CODECS = {"zstd": "zstd", "br": "brotli", "snappy": "snappy"}
_GZIP_WBITS = 31


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a shard; ``size`` is None if each sample says its own."""

    name: str
    size: int | None
    decode: Decode | None
    """None for a column that is left out."""


@dataclass(frozen=True, slots=True)
class MdsShard:
    """One shard of the index. ``codec`` is empty if it lies there raw; ``hashes`` are of the file that lies there."""

    entry: ObjectInfo
    num_rows: int
    raw_bytes: int
    codec: str
    columns: tuple[Column, ...]
    hashes: Mapping[str, str]


class MdsRecords:
    """The shards of an index as parts; raw ones are read by range, compressed ones whole."""

    kind = "mds"

    def __init__(self, stores: Stores, folder: str, columns: Sequence[str] | None = None) -> None:
        self._stores = stores
        entries = {entry.url: entry for entry in list_folder(stores, folder)}
        url = f"{folder}index.json"
        if url not in entries:
            raise NotFoundError(f"{shown(folder)} holds no index.json, which an MDS folder has")
        text = bytes(read_whole(stores, entries[url]))
        self._shards = _parse(folder, text, entries, columns)
        self.digest = digest_of(self.kind, folder, [entries[url], *(shard.entry for shard in self._shards)])
        self.classes: Mapping[str, Sequence[str]] = {}
        self.costs_whole_parts = any(shard.codec for shard in self._shards)
        self._offsets: dict[int, NDArray[np.int64]] = {}

    def survey(self, pool: Executor) -> Survey:
        return joined(list(pool.map(self._sizes, range(len(self._shards)))))

    def read(self, part: int, rows: Sequence[int]) -> Iterator[RawSample | SampleError]:
        shard = self._shards[part]
        content = None
        if shard.codec:
            content = self._unpacked(shard)
            offsets = _offsets(shard, content[: _head_bytes(shard)])
        else:
            offsets = self._offsets[part]
        wanted = np.asarray(rows, np.int64)
        starts, stops = offsets[wanted].tolist(), offsets[wanted + 1].tolist()
        for run in runs(rows, starts, stops):
            start, stop = starts[run[0]], stops[run[-1]]
            body = content[start:stop] if content is not None else read(self._stores, shard.entry, start, stop)
            for index in run:
                yield _sample(shard, rows[index], body[starts[index] - start : stops[index] - start])

    def _sizes(self, part: int) -> NDArray[np.int64]:
        shard = self._shards[part]
        if shard.codec:
            return mean_sizes(shard.num_rows, shard.raw_bytes)
        head = read(self._stores, shard.entry, 0, min(_head_bytes(shard), shard.entry.size_bytes))
        self._offsets[part] = offsets = _offsets(shard, head)
        return np.diff(offsets)

    def _unpacked(self, shard: MdsShard) -> memoryview:
        packed = read_whole(self._stores, shard.entry)
        for name, expected in shard.hashes.items():
            if name in hashlib.algorithms_guaranteed and not name.startswith("shake"):
                found = hashlib.new(name, packed).hexdigest()
                if found != expected:
                    raise ShardError(f"{shown(shard.entry.url)}: its {name} is {found}, index.json has {expected}")
        try:
            content = _unpack(shard.codec, packed, shard.raw_bytes)
        except (pa.ArrowException, OSError, ValueError, zlib.error) as error:
            raise ShardError(f"{shown(shard.entry.url)} does not unpack as {shard.codec}: {error}") from error
        if len(content) != shard.raw_bytes:
            raise ShardError(
                f"{shown(shard.entry.url)} unpacks to {len(content)} bytes, index.json has {shard.raw_bytes}"
            )
        return content


def _parse(folder: str, text: bytes, entries: Mapping[str, ObjectInfo], wanted: Sequence[str] | None) -> list[MdsShard]:
    url = shown(f"{folder}index.json")
    try:
        described = json.loads(text)
        if described["version"] != 2:
            raise SpecError(f"{url} is of version {described['version']}; version 2 is read")
        return [_shard(folder, entry, entries, wanted) for entry in described["shards"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, SpecError):
            raise
        raise ShardError(f"{url} is no index of MDS shards: {type(error).__name__}: {error}") from error


def _shard(
    folder: str, described: Mapping[str, Any], entries: Mapping[str, ObjectInfo], wanted: Sequence[str] | None
) -> MdsShard:
    if described["format"] != "mds":
        raise SpecError(f"{shown(folder)}: shards of format {described['format']!r}; only 'mds' is read")
    raw, packed = described["raw_data"], described.get("zip_data")
    names = described["column_names"]
    if unknown := [name for name in wanted or () if name not in names]:
        raise SpecError(f"{shown(folder)} has no column {unknown[0]!r}; it has: {', '.join(names)}")
    columns = [
        Column(
            field_name(name, encoding),
            size or None,
            decoder(name, encoding) if wanted is None or name in wanted else None,
        )
        for name, encoding, size in zip(names, described["column_encodings"], described["column_sizes"], strict=True)
    ]
    codec = (described.get("compression") or "").partition(":")[0]
    places: tuple[tuple[Any, str], ...] = ((packed, codec), (raw, ""))
    for file, unpack in places:
        entry = entries.get(folder + file["basename"]) if file else None
        if entry is not None:
            if entry.size_bytes != file["bytes"]:
                raise ShardError(
                    f"{shown(entry.url)} has {entry.size_bytes} bytes, index.json has {file['bytes']}; fetch it again"
                )
            hashes = file.get("hashes") or {}
            return MdsShard(entry, described["samples"], raw["bytes"], unpack, tuple(columns), hashes)
    raise NotFoundError(f"{shown(folder)} lacks the shard {(packed or raw)['basename']!r}, which its index.json names")


def _head_bytes(shard: MdsShard) -> int:
    return 4 * (shard.num_rows + 2)


def _offsets(shard: MdsShard, head: memoryview) -> NDArray[np.int64]:
    numbers = np.frombuffer(head[: len(head) // 4 * 4], "<u4").astype(np.int64)
    url = shown(shard.entry.url)
    if len(numbers) < shard.num_rows + 2 or numbers[0] != shard.num_rows:
        found = numbers[0] if len(numbers) else "none"
        raise ShardError(f"{url}: index.json says {shard.num_rows} samples, the shard says {found}")
    offsets = numbers[1:]
    if offsets[0] < _head_bytes(shard) or (np.diff(offsets) < 0).any() or offsets[-1] != shard.raw_bytes:
        raise ShardError(f"{url}: the offsets of its samples are damaged; fetch it again")
    return offsets


def _unpack(codec: str, packed: memoryview, raw_bytes: int) -> memoryview:
    match codec:
        case "gz":
            return memoryview(zlib.decompress(packed, _GZIP_WBITS, raw_bytes))
        case "bz2":
            return memoryview(bz2.decompress(packed))
        case _ if codec in _ARROW_CODECS:
            return memoryview(pa.decompress(packed, raw_bytes, codec=_ARROW_CODECS[codec], asbytes=True))
    raise ValueError(f"unknown compression {codec!r}; known: br, bz2, gz, snappy, zstd")


def _sample(shard: MdsShard, row: int, body: memoryview) -> RawSample | SampleError:
    origin = SampleOrigin(shown(shard.entry.url), row, "")
    try:
        return RawSample(origin, to_fields(_values(shard.columns, body)))
    except SampleError as error:
        return error.at(origin)


def _values(columns: Sequence[Column], body: memoryview) -> dict[str, Any]:
    num_own = sum(column.size is None for column in columns)
    own = iter(np.frombuffer(body[: 4 * num_own], "<u4").tolist())
    position = 4 * num_own
    values = {}
    for column in columns:
        size = column.size if column.size is not None else next(own, None)
        if size is None or position + size > len(body):
            raise SampleError(f"column {column.name!r} reaches past the sample's {len(body)} bytes")
        if column.decode is not None:
            values[column.name] = column.decode(body[position : position + size])
        position += size
    if position != len(body):
        raise SampleError(f"its columns have {position} bytes, the sample has {len(body)}")
    return values
