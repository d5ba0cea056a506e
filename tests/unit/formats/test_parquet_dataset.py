from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import stoker
from stoker.errors import SampleError, SampleOrigin, ShardError, SpecError, StokerWarning
from stoker.formats import parquet_groups
from stoker.formats.dataset import Dataset
from stoker.formats.open import open_dataset
from stoker.formats.parquet_writer import encode_shard
from stoker.formats.source import parquet
from stoker.formats.stores import Access
from stoker.sample import RawSample
from support import shards
from support.counting import Opener
from support.parquet import make_shards, read_all, rows_of, write_shard

ROWS = (7, 11, 2)
EXPECTED = [sample for shard in shards.samples(ROWS) for sample in rows_of(shard)]


def write_table(path: Path, columns: Mapping[str, Any], **options: Any) -> str:
    """A file as another program would write it."""
    pq.write_table(pa.table(columns), path, **options)
    return str(path)


def fields_of(dataset: Dataset) -> list[dict[str, Any]]:
    return [fields for _, fields in read_all(dataset)]


@pytest.mark.parametrize("group_bytes", [1, 5000, 1 << 20])
def test_every_sample_in_order_with_its_origin(tmp_path: Path, group_bytes: int) -> None:
    dataset = open_dataset(parquet(make_shards(tmp_path, ROWS, group_bytes=group_bytes)))
    assert dataset.chunks.num_samples == 20
    assert read_all(dataset) == EXPECTED
    origins = [sample.origin for chunk in range(len(dataset.chunks.num_rows)) for sample in dataset.read_chunk(chunk)]
    assert origins[7] == SampleOrigin(f"file://{tmp_path}/shard-0001.parquet", 0, "s01-0000")
    assert origins[19] == SampleOrigin(f"file://{tmp_path}/shard-0002.parquet", 1, "s02-0001")
    said = [
        dataset.origin(chunk, row) for chunk, num_rows in enumerate(dataset.chunks.num_rows) for row in range(num_rows)
    ]
    assert [(where.url, where.row) for where in said] == [(where.url, where.row) for where in origins]  # type: ignore[union-attr]


def test_describe_and_objects(tmp_path: Path) -> None:
    dataset = open_dataset(parquet(make_shards(tmp_path, (7, 2))))
    found = dataset.describe()
    assert (found["shards"], found["samples"], found["source"]) == (2, 9, "parquet")
    assert found["patterns"] == [f"file://{tmp_path}/shard-*.parquet"]
    assert found["bytes"] == sum(path.stat().st_size for path in tmp_path.glob("shard-*"))
    urls = [f"file://{tmp_path}/shard-{index:04d}.parquet" for index in range(2)]
    assert list(dataset.object_urls()) == urls
    assert dataset.object_at(1).size_bytes == (tmp_path / "shard-0001.parquet").stat().st_size


def test_fields_of_bytes_are_views(tmp_path: Path) -> None:
    dataset = open_dataset(parquet(make_shards(tmp_path, (3,))))
    first, second, _ = dataset.read_chunk(0)
    assert isinstance(first, RawSample)
    assert isinstance(second, RawSample)
    views = [first.fields["jpg"], second.fields["jpg"]]
    assert all(isinstance(view, memoryview) for view in views)
    assert views[0].obj is views[1].obj
    assert first.fields["cls"] == np.int64(0)


def test_a_chunk_reads_its_bytes_and_no_others(tmp_path: Path) -> None:
    """Neighbouring columns are one range; a footer that is in the index is not read again."""
    rows = [(f"{row:05d}", {"a": b"a" * 500, "b": b"b" * 500, "c": b"c" * 500}) for row in range(300)]
    path = write_shard(tmp_path / "a.parquet", rows, group_bytes=4096)
    group = pq.read_metadata(path).row_group(50)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    sizes = {name: column.total_compressed_size for name, column in columns.items()}
    for wanted, num_ranges in ((None, 1), (("a", "b"), 1), (("b",), 2), (("a", "c"), 2)):
        open_dataset(parquet(path, columns=wanted))
        opener = Opener()
        dataset = open_dataset(parquet(path, columns=wanted), access=Access(opener))
        assert not opener.store.urls_read("a.parquet")
        opener.store.reads.clear()
        assert len(dataset.read_chunk(50)) == group.num_rows
        read = {*(wanted or ("a", "b", "c")), "__key__"}
        assert len(dataset.ranges(50)) == num_ranges
        assert sum(one.num_bytes for one in dataset.ranges(50)) == sum(sizes[name] for name in read)
        assert dataset.chunks.size_bytes[50] == sum(sizes[name] for name in read)
        assert {url for url, _, _ in opener.store.reads} == {f"file://{path}"}
        assert opener.store.num_bytes < sum(sizes.values()) + 10


def test_columns_are_the_fields(tmp_path: Path) -> None:
    pattern = make_shards(tmp_path, ROWS)
    assert read_all(open_dataset(parquet(pattern, columns=["cls"]))) == [
        (key, {"cls": fields["cls"]}) for key, fields in EXPECTED
    ]


def test_names_with_dots_are_told_apart(tmp_path: Path) -> None:
    """pyarrow reads ``cls.txt`` as well when it is asked for ``cls``."""
    path = write_shard(tmp_path / "a.parquet", [("a", {"cls": 1, "cls.txt": b"one", "cls.a.b": b"two"})])
    for name, value in (("cls", 1), ("cls.txt", b"one"), ("cls.a.b", b"two")):
        assert read_all(open_dataset(parquet(path, columns=(name,)))) == [("a", {name: value})]


@pytest.mark.parametrize(
    "columns, text",
    [
        (("jpeg",), "has no column 'jpeg'; did you mean 'jpg'"),
        (("caption",), "it has: cls, jpg"),
        (("cls", "__key__"), "is the key of each sample"),
    ],
)
def test_a_column_that_is_not_there(tmp_path: Path, columns: tuple[str, ...], text: str) -> None:
    with pytest.raises(SpecError, match=text) as caught:
        open_dataset(parquet(make_shards(tmp_path, (3,)), columns=columns))
    assert "shard-0000.parquet" in str(caught.value)


def test_shards_may_have_other_columns(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.parquet", [("a", {"x": 1, "y": b"y"})])
    write_shard(tmp_path / "b.parquet", [("b", {"z": "text", "x": 2})])
    pattern = tmp_path / "*.parquet"
    assert read_all(open_dataset(parquet(pattern))) == [("a", {"x": 1, "y": b"y"}), ("b", {"x": 2, "z": "text"})]
    assert fields_of(open_dataset(parquet(pattern, columns=("x",)))) == [{"x": 1}, {"x": 2}]
    with pytest.raises(SpecError, match=r"b\.parquet has no column 'y'"):
        open_dataset(parquet(pattern, columns=("y",)))


def test_files_of_other_programs(tmp_path: Path) -> None:
    """Dictionaries, snappy, several pages per group, nulls, an index of pandas, statistics, no key."""
    table = {
        "image": [{"bytes": bytes([row]) * 900, "path": f"{row}.jpg"} for row in range(100)],
        "label": pa.array(range(100), pa.int32()),
        "caption": [None if row % 7 == 0 else f"caption {row % 3}" for row in range(100)],
        "__index_level_0__": list(range(100)),
    }
    path = write_table(tmp_path / "train-0.parquet", table, row_group_size=30, data_page_size=2000)
    dataset = open_dataset(parquet(path))
    assert dataset.chunks.num_rows.tolist() == [30, 30, 30, 10]
    assert read_all(dataset) == [
        (
            f"train-0/{row}",
            {"image": bytes([row]) * 900, "label": row} | ({"caption": f"caption {row % 3}"} if row % 7 else {}),
        )
        for row in range(100)
    ]
    assert fields_of(open_dataset(parquet(path, columns=("image",))))[99] == {"image": bytes([99]) * 900}


@pytest.mark.parametrize("codec", ["snappy", "gzip", "zstd", "lz4", "brotli", "none"])
@pytest.mark.parametrize("page", ["1.0", "2.0"])
def test_codecs_and_page_versions(tmp_path: Path, codec: str, page: str) -> None:
    table = {"key": [str(row) for row in range(50)], "x": [b"x" * row for row in range(50)]}
    path = write_table(
        tmp_path / "a.parquet", table, compression=codec, data_page_version=page, write_page_checksum=True
    )
    assert read_all(open_dataset(parquet(path))) == [(str(row), {"x": b"x" * row}) for row in range(50)]


def test_columns_that_cannot_be_fields_are_left_out_with_a_notice(tmp_path: Path) -> None:
    table = {"x": [1], "many": pa.array([[b"a", b"b"]], pa.list_(pa.binary()))}
    path = write_table(tmp_path / "a.parquet", table)
    with pytest.warns(StokerWarning, match="column 'many' is left out"):
        dataset = open_dataset(parquet(path))
    assert fields_of(dataset) == [{"x": 1}]
    with pytest.raises(SpecError, match="cannot be a field"):
        open_dataset(parquet(path, columns=("many",)))
    open_dataset(parquet(path, columns=("x",)))


def test_no_column_that_can_be_a_field(tmp_path: Path) -> None:
    path = write_table(tmp_path / "a.parquet", {"key": ["a"]})
    with pytest.raises(SpecError, match="no column that can be a field"):
        open_dataset(parquet(path))


def test_large_row_groups_are_read_with_one_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = make_shards(tmp_path, ROWS, group_bytes=1 << 20)
    monkeypatch.setattr(parquet_groups, "LARGE_GROUP_BYTES", 1000)
    with pytest.warns(StokerWarning, match="row_group_size") as caught:
        dataset = open_dataset(parquet(pattern))
    assert len(caught) == 1
    assert "shard-0001.parquet" in str(caught[0].message)
    assert read_all(dataset) == EXPECTED
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_dataset(parquet(pattern, columns=("cls",)))


def test_empty_shards_and_groups_are_no_chunks(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(encode_shard([]))
    write_table(tmp_path / "b.parquet", {"x": pa.array([], pa.int64())})
    write_shard(tmp_path / "c.parquet", [("c", {"x": 1})])
    with pytest.raises(SpecError, match=r"a\.parquet has no column that can be a field"):
        open_dataset(parquet(tmp_path / "*.parquet"))
    dataset = open_dataset(parquet(tmp_path / "{b,c}.parquet"))
    assert dataset.chunks.num_rows.tolist() == [1]
    assert read_all(dataset) == [("c", {"x": 1})]
    assert open_dataset(parquet(tmp_path / "b.parquet")).chunks.num_samples == 0


def test_a_bad_value_is_a_bad_sample(tmp_path: Path) -> None:
    path = write_table(tmp_path / "a.parquet", {"x": pa.array([[1, 2], [None], [3]], pa.list_(pa.int64()))})
    good, bad, _ = open_dataset(parquet(path)).read_chunk(0)
    assert isinstance(good, RawSample)
    assert isinstance(bad, SampleError)
    assert "a.parquet row 1 (key 'a/1'): field 'x': a list has a null" in str(bad)


def _flip(url: str, start: int, content: bytes, times: int) -> bytes:
    return content[:100] + bytes([content[100] ^ 1]) + content[101:] if times == 0 and len(content) > 200 else content


def test_bytes_that_were_damaged_on_their_way_are_read_again(tmp_path: Path) -> None:
    pattern = make_shards(tmp_path, ROWS)
    open_dataset(parquet(pattern))
    opener = Opener()
    dataset = open_dataset(parquet(pattern), access=Access(opener))
    opener.store.reads.clear()
    opener.store.spoil = _flip
    assert read_all(dataset) == EXPECTED
    assert len(opener.store.reads) == 2 * len(dataset.chunks.num_rows)


def test_bytes_that_were_damaged_differently_twice_are_read_once_more(tmp_path: Path) -> None:
    pattern = make_shards(tmp_path, ROWS)
    open_dataset(parquet(pattern))
    opener = Opener()
    dataset = open_dataset(parquet(pattern), access=Access(opener))
    opener.store.reads.clear()

    def spoil(url: str, start: int, content: bytes, times: int) -> bytes:
        return content if times > 1 else _flip(url, start + times, content[times:], 0).rjust(len(content), content[:1])

    opener.store.spoil = spoil
    assert read_all(dataset) == EXPECTED
    assert len(opener.store.reads) == 3 * len(dataset.chunks.num_rows)


def test_a_damaged_page_costs_its_row_group(tmp_path: Path) -> None:
    pattern = make_shards(tmp_path, (9,), group_bytes=4096)
    dataset = open_dataset(parquet(pattern))
    path = tmp_path / "shard-0000.parquet"
    content = bytearray(path.read_bytes())
    (wanted,) = dataset.ranges(1)
    content[wanted.stop - 10] ^= 1
    stamp = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert len(dataset.read_chunk(0)) > 0
    with pytest.raises(ShardError, match=r"row group 1, bytes .* read again and is damaged .*CRC"):
        dataset.read_chunk(1)


@pytest.mark.parametrize("seed", range(40))
def test_damage_without_checksums_never_ends_the_process(tmp_path: Path, seed: int) -> None:
    """Whatever bit is flipped: what cannot be parsed is read again."""
    table = {"x": [b"x" * row for row in range(50)], "y": [[row] * (row % 3) for row in range(50)]}
    path = write_table(tmp_path / "a.parquet", table)
    dataset = open_dataset(parquet(path))
    random = np.random.default_rng(seed)
    bodies = [bytearray(body) for body in dataset.stores.read_many(dataset.ranges(0), None)]
    for body in bodies:
        body[random.integers(len(body))] ^= 1 << int(random.integers(8))
    assert len(dataset.parse(0, [memoryview(bytes(body)) for body in bodies])) == 50


def test_the_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    pattern = make_shards(tmp_path / "a", ROWS)
    first = open_dataset(parquet(pattern)).fingerprint
    assert open_dataset(parquet(pattern)).fingerprint == first
    assert open_dataset(parquet(make_shards(tmp_path / "b", ROWS))).fingerprint == first
    assert open_dataset(parquet(make_shards(tmp_path / "c", ROWS, group_bytes=5000))).fingerprint != first
    assert open_dataset(parquet(make_shards(tmp_path / "d", (7, 11, 3)))).fingerprint != first
    assert open_dataset(parquet(pattern, columns=("jpg",))).fingerprint != first


def test_footers_that_were_not_used_lately_are_parsed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.formats.parquet_dataset.HELD_FOOTER_BYTES", 1)
    assert read_all(open_dataset(parquet(make_shards(tmp_path, ROWS)))) == EXPECTED


def test_full_shuffle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="row groups"):
        stoker.Pipeline(parquet(tmp_path / "*.parquet"), [], batch_size=1, shuffle="full")
