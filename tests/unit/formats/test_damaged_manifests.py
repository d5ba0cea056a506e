"""An index that comes damaged is read again, and never believed."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stoker.formats import file_table, manifest_file, parquet_manifest_file
from stoker.formats.index import IndexProgress
from stoker.formats.open import build_manifest, open_dataset
from stoker.formats.parquet import ManifestError
from stoker.formats.source import Source, files, parquet, tar
from stoker.formats.stores import Access, Stores
from support.counting import Opener
from support.parquet import make_shards as make_parquet
from support.shards import make_shards

STORES = Stores(None)
ROWS = (7, 11, 2)
LOADS: dict[str, Callable[[Stores, str], Any]] = {
    "tar": manifest_file.load,
    "files": file_table.load,
    "parquet": parquet_manifest_file.load,
}


@pytest.fixture(params=LOADS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "index.parquet"


@pytest.fixture
def source(kind: str, tmp_path: Path, place: Path) -> Source:
    """Data of this kind, indexed at ``place``."""
    folder = tmp_path / "data"
    folder.mkdir()
    found: Source
    if kind == "tar":
        make_shards(folder, ROWS)
        found = tar(folder / "*.tar", manifest=str(place))
    elif kind == "parquet":
        found = parquet(make_parquet(folder, ROWS), manifest=str(place))
    else:
        for name in ("cat", "dog"):
            (folder / name).mkdir()
            (folder / name / "1.jpg").write_bytes(b"picture")
        found = files(folder, manifest=str(place))
    build_manifest(found)
    return found


def plain(value: Any) -> Any:
    """What can be compared."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, pa.Array):
        return value.to_pylist()
    return [plain(each) for each in value] if isinstance(value, tuple | list) else value


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :]


@pytest.mark.usefixtures("source")
def test_a_flipped_bit_is_found(kind: str, place: Path) -> None:
    """Wherever it is: only headers of pages and the footer's numbers have no checksum, and most bits show there too."""
    content = place.read_bytes()
    expected = plain(LOADS[kind](STORES, f"file://{place}"))
    num_found = num_believed = 0
    for at in range(0, len(content), 3):
        place.write_bytes(flipped(content, at))
        try:
            num_believed += plain(LOADS[kind](STORES, f"file://{place}")) != expected
        except ManifestError:
            num_found += 1
    assert num_believed < len(content) / 600
    assert num_found > len(content) / 6


class FlipOnce:
    """Flips the byte at ``position`` of the index at its ``number``-th read that has it, from 0."""

    def __init__(self, position: int, number: int = 0) -> None:
        self.position = position
        self.number = number
        self.num_reads = 0

    def __call__(self, url: str, start: int, content: bytes, _before: int) -> bytes:
        if not url.endswith("/index.parquet") or not start <= self.position < start + len(content):
            return content
        self.num_reads += 1
        return flipped(content, self.position - start) if self.num_reads == self.number + 1 else content


def position_of(path: Path, column: str) -> int:
    """The last byte of a column's first pages."""
    group = pq.read_metadata(path).row_group(0)
    found = next(at for at in map(group.column, range(group.num_columns)) if at.path_in_schema.startswith(column))
    return int(found.data_page_offset + found.total_compressed_size - 1)


def is_made_again(source: Source, opener: Opener) -> bool:
    """Open a source: whether the data were looked at, or listed, for an index."""
    told: list[IndexProgress] = []
    assert open_dataset(source, progress=told.append, access=Access(opener)).chunks.num_samples
    return bool(told)


@pytest.mark.parametrize("number", range(2))  # the end of a small file is read first, which may be all of it
def test_an_index_that_comes_damaged_once_is_read_again(source: Source, place: Path, number: int) -> None:
    assert not is_made_again(source, Opener(FlipOnce(position_of(place, "size"), number)))


def test_an_index_that_stays_damaged_is_made_again(source: Source, place: Path) -> None:
    before = place.read_bytes()
    place.write_bytes(flipped(before, position_of(place, "size")))
    assert is_made_again(source, Opener())
    assert place.read_bytes() == before


def test_an_index_without_checksums_is_used(kind: str, source: Source, place: Path) -> None:
    """As releases wrote it that had none."""
    expected = plain(LOADS[kind](STORES, f"file://{place}"))
    rows, metadata = pq.read_table(place), pq.read_metadata(place).metadata
    kept = {b"stoker.manifest": metadata[b"stoker.manifest"]}
    pq.write_table(rows.replace_schema_metadata(kept), place, compression="zstd")
    assert plain(LOADS[kind](STORES, f"file://{place}")) == expected
    assert not is_made_again(source, Opener())


@pytest.mark.parametrize("number", range(3))
def test_damage_is_not_taken_over_into_the_next_index(tmp_path: Path, place: Path, number: int) -> None:
    """The index is read twice where a shard has changed: to compare, and for what is kept of it."""
    shard, *_ = make_shards(tmp_path, ROWS)
    source = tar(tmp_path / "*.tar", manifest=str(place))
    build_manifest(source)
    expected = pq.read_table(place)
    os.utime(shard, (1, 1))
    opener = Opener(FlipOnce(position_of(place, "key"), number))
    assert is_made_again(source, opener)
    assert opener.store.urls_read(".tar") == {f"file://{shard}"}
    assert pq.read_table(place).equals(expected)
