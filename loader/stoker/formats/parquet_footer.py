"""What the footer of a Parquet file says: where its row groups lie and which columns can be fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from stoker.errors import ShardError
from stoker.formats.parquet_columns import KEY_COLUMN, is_readable, key_column
from stoker.formats.sniff import looks_like

MAGIC = b"PAR1"
_ENCRYPTED = b"PARE"
_TAIL_BYTES = 8
_FIRST_READ_BYTES = 64 << 10

Read = Callable[[int, int], memoryview]


@dataclass(frozen=True, slots=True)
class Layout:
    """What is the same for all shards of one schema.

    ``columns`` can be fields, ``left_out`` cannot. ``key`` is the column of the keys, or empty. ``leaves`` are the
    paths of what a file really has columns of: a struct has several.
    """

    columns: tuple[str, ...]
    left_out: tuple[str, ...]
    key: str
    leaves: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Footer:
    """One file. ``raw`` is what pyarrow parses; the arrays have an entry per row group, and per leaf of each."""

    raw: bytes
    layout: Layout
    num_rows: NDArray[np.int32]
    leaf_start: NDArray[np.int64]
    leaf_size: NDArray[np.int64]

    @property
    def digest(self) -> str:
        """Identity of the content, as far as the footer tells: schema, rows, sizes, statistics."""
        return blake2b(self.raw, digest_size=16).hexdigest()


def read_footer(url: str, size_bytes: int, read: Read) -> Footer:
    """Read a file's footer, with one request where it is small. Raises ShardError if the file has none."""
    tail = read(max(0, size_bytes - _FIRST_READ_BYTES), size_bytes) if size_bytes else memoryview(b"")
    magic = bytes(tail[-len(MAGIC) :])
    if magic == _ENCRYPTED:
        raise ShardError(f"{url} is an encrypted Parquet file, which Stoker does not read; write it without encryption")
    length = int.from_bytes(tail[-_TAIL_BYTES : -len(MAGIC)], "little")
    if magic != MAGIC or length + _TAIL_BYTES + len(MAGIC) > size_bytes:
        raise ShardError(f"{url} {_no_parquet(size_bytes, read)}")
    start = size_bytes - _TAIL_BYTES - length
    raw = (
        tail[-_TAIL_BYTES - length : -_TAIL_BYTES] if length + _TAIL_BYTES <= len(tail) else read(start, start + length)
    )
    return parse(url, bytes(raw))


def metadata_of(raw: bytes) -> pq.FileMetaData:
    """The footer as pyarrow has it. Raises what pyarrow raises."""
    tail = len(raw).to_bytes(4, "little") + MAGIC
    return pq.read_metadata(pa.BufferReader(b"".join((MAGIC, raw, tail))))


def parse(url: str, raw: bytes) -> Footer:
    """What a footer says. Raises ShardError if it cannot be read."""
    try:
        found = metadata_of(raw)
        layout = _layout(url, found)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ShardError(f"{url}: its Parquet footer cannot be read ({error}); make the shard again") from error
    groups = [found.row_group(number) for number in range(found.num_row_groups)]
    leaves = [group.column(number) for group in groups for number in range(found.num_columns)]
    return Footer(
        raw,
        layout,
        np.array([group.num_rows for group in groups], np.int32),
        np.array([_start(leaf) for leaf in leaves], np.int64),
        np.array([leaf.total_compressed_size for leaf in leaves], np.int64),
    )


def _layout(url: str, found: pq.FileMetaData) -> Layout:
    schema = found.schema.to_arrow_schema()
    name, count = next(iter(Counter(schema.names).most_common(1)), ("", 0))
    if count > 1:
        raise ShardError(f"{url} has {count} columns named {name!r}; write it again with names that differ")
    key = key_column(schema)
    columns: list[str] = []
    left_out: list[str] = []
    for field in schema:
        if field.name == key or _is_metadata(field.name):
            continue
        (columns if is_readable(field.type) else left_out).append(field.name)
    leaves = tuple(found.schema.column(number).path for number in range(found.num_columns))
    return Layout(tuple(columns), tuple(left_out), key, leaves)


def _is_metadata(name: str) -> bool:
    """As in tar shards: pandas writes its index as ``__index_level_0__``."""
    return name == KEY_COLUMN or (name.startswith("__") and name.endswith("__"))


def _start(leaf: pq.ColumnChunkMetaData) -> int:
    offsets = (leaf.dictionary_page_offset if leaf.has_dictionary_page else 0, leaf.data_page_offset)
    return min(int(offset) for offset in offsets if offset)


def _no_parquet(size_bytes: int, read: Read) -> str:
    if not size_bytes:
        return "is empty (0 bytes), as after a broken upload; make it again"
    start = bytes(read(0, min(512, size_bytes)))
    if start.startswith(MAGIC):
        return f"is a Parquet file that is cut at byte {size_bytes}: its footer is missing; make or upload it again"
    return f"is no Parquet file; it looks like {looks_like(start)}"
