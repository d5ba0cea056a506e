"""The layouts of shards that are written, each with the way to read one back."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from stoker.convert.fields import Content
from stoker.errors import DataError, ShardError
from stoker.formats.keys import first_dot
from stoker.formats.parquet_columns import KEY_COLUMN
from stoker.formats.parquet_writer import encode_shard
from stoker.formats.tar import BLOCK_BYTES, TarError, members

_END = bytes(2 * BLOCK_BYTES)


class Print(NamedTuple):
    """What of a record is compared: its key, and of each field, by name, size and CRC32C."""

    key: str
    fields: tuple[tuple[str, int, int], ...]


class Builder(Protocol):
    """One shard in memory, owned by one thread."""

    def add(self, key: str, fields: Mapping[str, Content]) -> None: ...

    def finish(self) -> bytes:
        """The shard's bytes, the same for the same records; nothing may be added any more."""
        ...


class TarBuilder:
    """WebDataset's layout: a member per field, ustar headers, PAX ones where names are long or not ASCII."""

    def __init__(self) -> None:
        self._sink = io.BytesIO()

    def add(self, key: str, fields: Mapping[str, Content]) -> None:
        for field, content in fields.items():
            member = tarfile.TarInfo(f"{key}.{field}")  # time, owner and group are 0
            member.size = len(content)
            self._sink.write(member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
            self._sink.write(content)
            self._sink.write(_END[: -len(content) % BLOCK_BYTES])

    def finish(self) -> bytes:
        self._sink.write(_END)
        return self._sink.getvalue()


class ParquetBuilder:
    """A row per record, a column per field, all of bytes, as ``formats/parquet_writer.py`` lays them out."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, Mapping[str, Content]]] = []

    def add(self, key: str, fields: Mapping[str, Content]) -> None:
        self._rows.append((key, {name: bytes(content) for name, content in fields.items()}))

    def finish(self) -> bytes:
        rows, self._rows = self._rows, []
        return encode_shard(rows)


def print_of(key: str, fields: Mapping[str, Content]) -> Print:
    """What is compared of a record."""
    return Print(key, tuple(sorted((name, len(content), crc32c(content)) for name, content in fields.items())))


def read_tar(url: str, payload: memoryview) -> Iterator[Print]:
    """The records of a tar shard, by the parser that training reads it with. Raises ShardError."""
    key: str | None = None
    fields: dict[str, Content] = {}
    try:
        found = members(payload, verify=True)
    except TarError as error:
        raise ShardError(f"{url}: byte {error.offset}: {error.reason}") from error
    for member in found:
        split = first_dot(member.name)
        if split is None or member.problem:
            raise ShardError(f"{url}: the member {member.name!r} is none of a sample")
        if split[0] != key:
            if key is not None:
                yield print_of(key, fields)
            key, fields = split[0], {}
        fields[split[1]] = payload[member.body : member.body + member.size]
    if key is not None:
        yield print_of(key, fields)


def read_parquet(url: str, payload: memoryview) -> Iterator[Print]:
    """The records of a Parquet shard, a row group at a time, with the checksums of its pages. Raises ShardError."""
    try:
        with pq.ParquetFile(pa.BufferReader(payload), page_checksum_verification=True) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, use_threads=False)
                names = [name for name in table.column_names if name != KEY_COLUMN]
                keys = table.column(KEY_COLUMN).to_pylist()
                for row, key in enumerate(keys):
                    values = {name: table.column(name)[row].as_buffer() for name in names}
                    yield print_of(key, {n: memoryview(v) for n, v in values.items() if v is not None})
    except (pa.ArrowException, OSError, KeyError) as error:
        raise ShardError(f"{url}: {error}") from error


def compare(url: str, expected: list[Print], found: Iterator[Print]) -> None:
    """Raises DataError that names the first record that is not what was to be written."""
    number = -1
    for number, print_ in enumerate(found):
        if number >= len(expected) or print_ != expected[number]:
            wanted = expected[number].key if number < len(expected) else "no record"
            raise DataError(
                f"{url}: record {number} came back as {print_.key!r}, written was {wanted!r}, or its bytes differ"
            )
    if number + 1 != len(expected):
        raise DataError(f"{url}: {number + 1} records came back, {len(expected)} were written")
