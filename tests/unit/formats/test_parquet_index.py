"""The manifest of Parquet shards: found again, brought up to date, made again where it is damaged."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import stoker
from stoker.errors import ShardError
from stoker.formats import parquet_manifest_file
from stoker.formats.index import IndexProgress
from stoker.formats.open import build_manifest, open_dataset
from stoker.formats.parquet import ManifestError
from stoker.formats.parquet_footer import metadata_of, read_footer
from stoker.formats.parquet_manifest import ParquetManifest
from stoker.formats.source import parquet
from stoker.formats.stores import Access, Stores
from support.counting import Opener
from support.parquet import make_shards, read_all, write_shard
from support.shards import tar_bytes

ROWS = (7, 11, 2)
STORES = Stores(None)


def footers_read(pattern: str, **options: object) -> set[str]:
    """Open a source; the names of the shards that were looked into."""
    opener = Opener()
    open_dataset(parquet(pattern, **options), access=Access(opener))
    return {url.rpartition("/")[2] for url in opener.store.urls_read() if "index-" not in url}


def index_in(folder: Path) -> Path:
    (found,) = folder.glob(".stoker-index-*.parquet")
    return found


def test_a_second_opening_reads_no_footer(tmp_path: Path) -> None:
    pattern = make_shards(tmp_path, ROWS)
    assert len(footers_read(pattern)) == 3
    assert footers_read(pattern) == set()
    assert footers_read(pattern, columns=("cls",)) == set()


def test_only_what_changed_is_looked_at(tmp_path: Path) -> None:
    pattern = make_shards(tmp_path, ROWS)
    open_dataset(parquet(pattern))
    write_shard(tmp_path / "shard-0001.parquet", [("new", {"other": 1})])
    write_shard(tmp_path / "shard-0003.parquet", [("last", {"jpg": b"x"})])
    assert footers_read(pattern) == {"shard-0001.parquet", "shard-0003.parquet"}
    found = read_all(open_dataset(parquet(pattern)))
    assert [key for key, _ in found][7:] == ["new", "s02-0000", "s02-0001", "last"]
    assert found[7][1] == {"other": 1}


def test_a_layout_that_no_shard_has_any_more_is_forgotten(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.parquet", [("a", {"x": 1})])
    write_shard(tmp_path / "b.parquet", [("b", {"y": 1})])
    open_dataset(parquet(tmp_path / "*.parquet"))
    write_shard(tmp_path / "b.parquet", [("b", {"x": 123456})])
    assert read_all(open_dataset(parquet(tmp_path / "*.parquet", columns=("x",)))) == [
        ("a", {"x": 1}),
        ("b", {"x": 123456}),
    ]
    assert Path(path).exists()


def test_a_folder_can_be_moved_with_its_index(tmp_path: Path) -> None:
    make_shards(tmp_path / "before", ROWS)
    first = open_dataset(parquet(tmp_path / "before/shard-*.parquet"))
    shutil.move(tmp_path / "before", tmp_path / "after")
    assert footers_read(f"{tmp_path}/after/shard-*.parquet") == set()
    assert open_dataset(parquet(tmp_path / "after/shard-*.parquet")).fingerprint == first.fingerprint


def test_round_trip_of_the_manifest(tmp_path: Path) -> None:
    source = parquet(make_shards(tmp_path, ROWS, group_bytes=1), manifest=str(tmp_path / "m.parquet"))
    built = build_manifest(source)
    assert isinstance(built.manifest, ParquetManifest)
    assert (built.num_scanned, built.num_kept) == (3, 0)
    found = parquet_manifest_file.load(STORES, f"file://{tmp_path}/m.parquet")
    assert (found.url, found.layouts) == (built.manifest.url, built.manifest.layouts)
    for shard, made in zip(found.shards, built.manifest.shards, strict=True):
        assert (shard.url, shard.size_bytes, shard.version, shard.digest) == (
            made.url,
            made.size_bytes,
            made.version,
            made.digest,
        )
        assert shard.footer == made.footer
        for name in ("group_rows", "leaf_start", "leaf_size"):
            np.testing.assert_array_equal(getattr(shard, name), getattr(made, name))
    again = build_manifest(source)
    assert (again.num_scanned, again.num_kept) == (0, 3)
    assert [shard.num_rows for shard in again.manifest.shards] == [*ROWS]


@pytest.mark.parametrize("damage", ["cut", "another kind", "no manifest"])
def test_a_damaged_manifest_is_made_again(tmp_path: Path, damage: str) -> None:
    pattern = make_shards(tmp_path, ROWS)
    expected = open_dataset(parquet(pattern)).fingerprint
    place = index_in(tmp_path)
    if damage == "cut":
        place.write_bytes(place.read_bytes()[:-100])
    elif damage == "another kind":
        stoker.formats.open.build_manifest(stoker.tar(_tar(tmp_path), manifest=str(place)))
    else:
        pq.write_table(pa.table({"x": [1]}), place)
    with pytest.raises(ManifestError):
        parquet_manifest_file.load(STORES, f"file://{place}")
    assert open_dataset(parquet(pattern)).fingerprint == expected
    assert footers_read(pattern) == set()


def _tar(folder: Path) -> Path:
    path = folder / "a.tar"
    path.write_bytes(tar_bytes([("a", {"txt": b"one"})]))
    return path


def test_a_folder_that_cannot_be_written_has_its_index_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    pattern = make_shards(tmp_path / "data", ROWS)
    open_dataset(parquet(pattern))
    beside = index_in(tmp_path / "data")
    beside.unlink()
    beside.mkdir()
    (beside / "in-the-way").touch()
    assert len(footers_read(pattern)) == 3
    assert footers_read(pattern) == set()
    assert list((tmp_path / "cache/stoker").iterdir())


def test_progress_counts_each_shard(tmp_path: Path) -> None:
    pattern = make_shards(tmp_path, ROWS)
    said: list[IndexProgress] = []
    open_dataset(parquet(pattern), progress=said.append)
    size = sum(path.stat().st_size for path in tmp_path.glob("shard-*"))
    assert said[-1] == IndexProgress(3, 3, size, size, 20)


@pytest.mark.parametrize(
    "content, text",
    [
        (b"", r"is empty \(0 bytes\)"),
        (b"PAR1", "is cut at byte 4"),
        (b"PAR1" + b"x" * 100_000, "is cut at byte 100004"),
        (b"PAR1" + b"\xff" * 4 + b"PAR1", "is cut at byte 12"),
        (b"PAR1" + b"\xff" * 20 + b"\x14\0\0\0PAR1", "footer cannot be read"),
        (b"PAR1" + b"\0" * 20 + b"\x14\0\0\0PARE", "encrypted"),
        (tar_bytes([("a", {"txt": b"one"})]), "is no Parquet file; it looks like"),
        (b"<html>not found</html>", "is no Parquet file; it looks like a web page"),
    ],
    ids=["empty", "magic", "cut", "long footer", "footer", "encrypted", "tar", "html"],
)
def test_what_is_no_shard(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(ShardError, match=text) as caught:
        open_dataset(parquet(tmp_path / "a.parquet"))
    assert "a.parquet" in str(caught.value)


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"]), tmp_path / "a.parquet")
    with pytest.raises(ShardError, match="2 columns named 'x'"):
        open_dataset(parquet(tmp_path / "a.parquet"))


def test_a_footer_takes_one_request_where_it_is_small() -> None:
    for num_columns, num_reads in ((3, 1), (3000, 2)):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({f"c{number}": [number] for number in range(num_columns)}), sink)
        content = memoryview(sink.getvalue().to_pybytes())
        reads: list[tuple[int, int]] = []

        def read(
            start: int, stop: int, content: memoryview = content, reads: list[tuple[int, int]] = reads
        ) -> memoryview:
            reads.append((start, stop))
            return content[start:stop]

        footer = read_footer("file:///a.parquet", len(content), read)
        assert len(reads) == num_reads
        assert len(footer.layout.leaves) == num_columns
        assert metadata_of(footer.raw).num_rows == 1


def test_a_shard_that_was_replaced_in_place_is_seen(tmp_path: Path) -> None:
    pattern = make_shards(tmp_path, (3,))
    before = open_dataset(parquet(pattern)).fingerprint
    path = tmp_path / "shard-0000.parquet"
    stamp = path.stat()
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 10**9))
    assert footers_read(pattern) == {"shard-0000.parquet"}
    assert open_dataset(parquet(pattern)).fingerprint == before
