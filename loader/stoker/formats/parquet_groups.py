"""Which row groups are the chunks of a data set, and which of their bytes are read; pure."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.errors import SpecError
from stoker.formats.dataset import ChunkTable
from stoker.formats.parquet_footer import Layout
from stoker.formats.parquet_manifest import ParquetManifest, ParquetShard
from stoker.storage.urls import shown

LARGE_GROUP_BYTES = 16 << 20
"""Row groups that are larger on average are read all the same, with a notice."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is read of the shards of one layout: ``fields``, the column of ``key`` (or empty), the leaves of both."""

    fields: tuple[str, ...]
    key: str
    leaves: NDArray[np.int64]

    @property
    def columns(self) -> list[str]:
        return [*self.fields, self.key] if self.key else [*self.fields]


@dataclass(frozen=True, slots=True)
class Groups:
    """The row groups that have rows, in order: one chunk each.

    ``shard`` is the shard's number, ``number`` that of the group in it, ``first_row`` the group's first row in it.
    """

    table: ChunkTable
    shard: NDArray[np.int32]
    number: NDArray[np.int32]
    first_row: NDArray[np.int64]


def choices(manifest: ParquetManifest, columns: tuple[str, ...] | None) -> list[Choice]:
    """What is read of the shards of each layout: these columns, or all that can be fields.

    Raises SpecError, which names a shard, if it lacks a column.
    """
    urls = {shard.layout: shard.url for shard in reversed(manifest.shards)}
    return [_choice(layout, columns, shown(urls[number])) for number, layout in enumerate(manifest.layouts)]


def cut(manifest: ParquetManifest, chosen: Sequence[Choice]) -> Groups:
    """The chunks of a data set, with the bytes that are read for what was chosen."""
    rows = [shard.group_rows for shard in manifest.shards]
    shard = np.repeat(np.arange(len(rows), dtype=np.int32), [len(found) for found in rows])
    number = _joined([np.arange(len(found)) for found in rows], np.int32)
    first_row = _joined([np.cumsum(found, dtype=np.int64) - found for found in rows], np.int64)
    size_bytes = _joined([_sizes(shard, chosen[shard.layout]) for shard in manifest.shards], np.int64)
    num_rows = _joined(rows, np.int32)
    has_rows = num_rows > 0
    num_rows = num_rows[has_rows]
    first_sample = np.cumsum(num_rows, dtype=np.int64) - num_rows
    table = ChunkTable(num_rows, size_bytes[has_rows], first_sample)
    return Groups(table, shard[has_rows], number[has_rows], first_row[has_rows])


def ranges(shard: ParquetShard, choice: Choice, group: int) -> list[tuple[int, int]]:
    """The bytes ``[start, stop)`` that are read of one row group; columns that are neighbours are one range."""
    starts = _by_group(shard, shard.leaf_start)[group, choice.leaves].tolist()
    sizes = _by_group(shard, shard.leaf_size)[group, choice.leaves].tolist()
    found: list[tuple[int, int]] = []
    for start, size in sorted(zip(starts, sizes, strict=True)):
        if found and found[-1][1] == start:
            found[-1] = found[-1][0], start + size
        else:
            found.append((start, start + size))
    return found


def notices(manifest: ParquetManifest, columns: tuple[str, ...] | None) -> tuple[str, ...]:
    """What the user should know at each opening, one sentence each. Raises as :func:`choices`."""
    found = []
    if columns is None:
        left_out = dict.fromkeys(name for layout in manifest.layouts for name in layout.left_out)
        found += [f"column {name!r} is left out: it holds bytes inside of lists or structs" for name in left_out]
    groups = cut(manifest, choices(manifest, columns))
    sizes = groups.table.size_bytes
    if len(sizes) and sizes.mean() > LARGE_GROUP_BYTES:
        largest = int(sizes.argmax())
        url = shown(manifest.shards[groups.shard[largest]].url)
        mean_mib, max_mib = sizes.mean() / (1 << 20), sizes[largest] / (1 << 20)
        found.append(
            f"row groups have {mean_mib:.0f} MiB on average, the largest {max_mib:.0f} MiB, in {url}; each is read and "
            "held whole. Groups of about 1 MiB mix better and need less memory: write them with `stoker convert`, or "
            "with row_group_size=… of pyarrow's write_table"
        )
    return tuple(found)


def _choice(layout: Layout, columns: tuple[str, ...] | None, url: str) -> Choice:
    fields = layout.columns if columns is None else columns
    if not fields:
        raise SpecError(f"{url} has no column that can be a field")
    for name in fields:
        if name not in layout.columns:
            raise SpecError(_lacking(layout, name, url))
    wanted = {*fields, layout.key} if layout.key else {*fields}
    leaves = [number for number, path in enumerate(layout.leaves) if _belongs(path, wanted)]
    return Choice(fields, layout.key, np.array(leaves, np.int64))


def _belongs(path: str, columns: set[str]) -> bool:
    """As pyarrow chooses the leaves for names: those of this path, or below it."""
    parts = path.split(".")
    return any(".".join(parts[:stop]) in columns for stop in range(1, len(parts) + 1))


def _lacking(layout: Layout, name: str, url: str) -> str:
    if name in layout.left_out:
        return f"column {name!r} of {url} cannot be a field: it holds bytes inside of lists or structs"
    if name == layout.key:
        return f"column {name!r} of {url} is the key of each sample, which batches have as __key__; leave it out"
    close = difflib.get_close_matches(name, layout.columns, n=1)
    known = ", ".join(layout.columns[:10]) or "none"
    return f"{url} has no column {name!r}; {f'did you mean {close[0]!r}?' if close else f'it has: {known}'}"


def _sizes(shard: ParquetShard, choice: Choice) -> NDArray[np.int64]:
    if not len(shard.group_rows):
        return np.zeros(0, np.int64)
    found: NDArray[np.int64] = _by_group(shard, shard.leaf_size)[:, choice.leaves].sum(1, dtype=np.int64)
    return found


def _by_group(shard: ParquetShard, leaves: NDArray[np.int64]) -> NDArray[np.int64]:
    return leaves.reshape(len(shard.group_rows), -1)


def _joined(arrays: Sequence[NDArray[Any]], dtype: type[np.integer[Any]]) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype), *arrays]).astype(dtype, copy=False)
