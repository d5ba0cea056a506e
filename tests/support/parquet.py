"""Small Parquet shards for tests, with the samples of :mod:`support.shards`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stoker.formats.dataset import Dataset
from stoker.formats.parquet_writer import encode_shard
from stoker.sample import RawSample
from support import shards


def write_shard(path: Path, rows: Sequence[tuple[str, Mapping[str, Any]]], group_bytes: int = 8192) -> str:
    """Write one shard and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_shard(rows, group_bytes=group_bytes))
    return str(path)


def rows_of(samples: Sequence[tuple[str, Mapping[str, bytes]]]) -> list[tuple[str, dict[str, Any]]]:
    """The same samples with the label as a number."""
    return [(key, {**fields, "cls": int(fields["cls"])}) for key, fields in samples]


def make_shards(folder: Path, rows: Sequence[int], *, images: bool = True, group_bytes: int = 8192) -> str:
    """Write shards of so many rows each, as :func:`support.shards.make_shards` does, and return their pattern."""
    for index, samples in enumerate(shards.samples(rows, images=images)):
        write_shard(folder / f"shard-{index:04d}.parquet", rows_of(samples), group_bytes)
    return f"{folder}/shard-*.parquet"


def read_all(dataset: Dataset) -> list[tuple[str, dict[str, Any]]]:
    """All samples, of which none may be an error: key and fields, bytes as bytes, arrays as nested lists."""
    found = []
    for chunk_index in range(len(dataset.chunks.num_rows)):
        for sample in dataset.read_chunk(chunk_index):
            assert isinstance(sample, RawSample), sample
            found.append((sample.origin.key, {name: plain(value) for name, value in sample.fields.items()}))
    return found


def plain(value: Any) -> Any:
    """A value of a field that can be compared with ``==``."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
