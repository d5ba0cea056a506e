"""Hugging Face folders: Arrow files of save_to_disk, Parquet files as on the hub."""

from __future__ import annotations

import datetime as dt
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from stoker.convert.detect import open_records
from stoker.convert.options import ConvertOptions
from stoker.convert.records import Records
from stoker.errors import NotFoundError, SampleError, ShardError, SpecError
from support import foreign_data, pictures
from support.records import fields_of, good, read_all

FEATURES = {
    "image": {"_type": "Image"},
    "label": {"_type": "ClassLabel", "names": ["cat", "dog"]},
    "text": {"_type": "Value", "dtype": "string"},
}


def table(num_rows: int = 10) -> pa.Table:
    columns = {
        "image": foreign_data.images([pictures.jpeg(n) for n in range(num_rows)]),
        "label": pa.array([n % 2 for n in range(num_rows)], pa.int64()),
        "text": pa.array([f"text {n}" for n in range(num_rows)]),
    }
    return foreign_data.hf_table(columns, FEATURES)


def expected(number: int) -> dict[str, bytes]:
    return {"jpg": pictures.jpeg(number), "cls": str(number % 2).encode(), "text": f"text {number}".encode()}


def records(source: Path | str, **options: Any) -> Records:
    return open_records(str(source), ConvertOptions(**options))


@pytest.mark.parametrize("num_files", [1, 3])
@pytest.mark.parametrize("kind", ["arrow", "parquet"])
@pytest.mark.parametrize("seed", [None, 1])
def test_rows_in_order(tmp_path: Path, kind: str, num_files: int, seed: int | None) -> None:
    write = foreign_data.save_to_disk if kind == "arrow" else foreign_data.hub
    write(tmp_path, table(), num_files=num_files)
    source = records(tmp_path)
    found = good(source, seed)
    assert sorted(fields["text"] for fields in found) == sorted(expected(n)["text"] for n in range(10))
    assert all(fields == expected(int(fields["text"][5:])) for fields in found)
    assert (found == [expected(n) for n in range(10)]) == (seed is None)
    assert {name: list(names) for name, names in source.classes.items()} == {"label": ["cat", "dog"]}


def test_kinds_of_columns(tmp_path: Path) -> None:
    columns = {
        "flag": pa.array([True]),
        "half": pa.array([np.float32(0.1)], pa.float32()),
        "many": pa.array([[1, 2, 3]], pa.list_(pa.int32())),
        "grid": pa.array([[[1.5, 2.5], [3.5, 4.5]]], pa.list_(pa.list_(pa.float32()))),
        "ragged": pa.array([[[1], [2, 3]]], pa.list_(pa.list_(pa.int64()))),
        "meta": pa.array([{"a": 1, "b": ["x"]}]),
        "day": pa.array([dt.date(2026, 11, 30)]),
        "none": pa.array([None], pa.string()),
        "raw": pa.array([b"\0"], pa.large_binary()),
    }
    foreign_data.hub(tmp_path, foreign_data.hf_table(columns))
    (fields,) = good(records(tmp_path))
    assert {name: fields[name] for name in ("flag", "half", "day", "raw")} == {
        "flag": b"1",
        "half": b"0.1",
        "day": b"2026-11-30",
        "raw": b"\0",
    }
    assert np.load(io.BytesIO(fields["many.npy"])).tolist() == [1, 2, 3]
    assert np.load(io.BytesIO(fields["grid.npy"])).dtype == np.float32
    assert json.loads(fields["ragged.json"]) == [[1], [2, 3]]
    assert json.loads(fields["meta.json"]) == {"a": 1, "b": ["x"]}
    assert "none" not in fields


def test_a_picture_that_is_only_a_path_is_a_bad_record(tmp_path: Path) -> None:
    image = foreign_data.images([None, pictures.jpeg()], ["/elsewhere/1.jpg", None])
    foreign_data.save_to_disk(tmp_path, foreign_data.hf_table({"image": image}))
    bad, fine = read_all(records(tmp_path))
    assert isinstance(bad, SampleError)
    assert "embedded" in bad.reason
    assert fields_of(fine) == {"jpg": pictures.jpeg()}


def test_columns_are_chosen(tmp_path: Path) -> None:
    foreign_data.hub(tmp_path, table(2))
    assert good(records(tmp_path, columns=("text",))) == [{"text": b"text 0"}, {"text": b"text 1"}]
    with pytest.raises(SpecError, match="no column 'txt'; it has: image, label, text"):
        good(records(tmp_path, columns=("txt",)))


def test_splits_are_not_mixed(tmp_path: Path) -> None:
    foreign_data.hub(tmp_path, table(4), "train", num_files=2)
    foreign_data.hub(tmp_path, table(2), "test")
    with pytest.raises(SpecError, match="several splits: data/test, data/train"):
        records(tmp_path)
    assert len(good(records(tmp_path / "data" / "train-*.parquet"))) == 4


def test_a_dict_of_splits_is_taken_apart(tmp_path: Path) -> None:
    for split in ("train", "test"):
        foreign_data.save_to_disk(tmp_path / split, table(3))
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(SpecError, match="several splits: test/data, train/data; convert each by itself"):
        records(tmp_path)
    assert len(good(records(tmp_path / "train"))) == len(good(records(f"{tmp_path}/train/data*"))) == 3


def test_the_files_of_state_json_count(tmp_path: Path) -> None:
    foreign_data.save_to_disk(tmp_path, table(4), num_files=2)
    (tmp_path / "cache-0123.arrow").write_bytes(b"left by datasets.map")
    assert len(good(records(tmp_path))) == 4
    (tmp_path / "data-00001-of-00002.arrow").unlink()
    with pytest.raises(NotFoundError, match=r"lacks 'data-00001-of-00002\.arrow'"):
        records(tmp_path)


def test_an_indices_mapping_is_refused(tmp_path: Path) -> None:
    foreign_data.save_to_disk(tmp_path, table(4))
    state = json.loads((tmp_path / "state.json").read_text())
    (tmp_path / "state.json").write_text(json.dumps({**state, "_indices_data_files": [{"filename": "indices.arrow"}]}))
    with pytest.raises(SpecError, match="flatten"):
        records(tmp_path)


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
def test_arrow_files_in_both_formats_with_dictionaries_and_compression(tmp_path: Path, codec: str | None) -> None:
    found = pa.table({"name": pa.array(["a", "b", "a", None]).dictionary_encode(), "n": pa.array([1, 2, 3, 4])})
    options = pa.ipc.IpcWriteOptions(compression=codec)
    for new in (pa.ipc.new_stream, pa.ipc.new_file):
        with pa.OSFile(str(tmp_path / "x.arrow"), "wb") as sink, new(sink, found.schema, options=options) as writer:
            writer.write_table(found, max_chunksize=2)
        expected_rows = [{"name": b"a", "n": b"1"}, {"name": b"b", "n": b"2"}, {"name": b"a", "n": b"3"}, {"n": b"4"}]
        assert good(records(tmp_path)) == expected_rows


def test_arrow_files_that_are_cut_or_none(tmp_path: Path) -> None:
    foreign_data.save_to_disk(tmp_path, table(4))
    path = tmp_path / "data-00000-of-00001.arrow"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ShardError, match="is cut at byte"):
        good(records(tmp_path))
    for start in (b"", b"\xff\xff\xff\xff\x10\0\0\0" + b"\xff" * 100, b"text " * 30):
        path.write_bytes(start)
        with pytest.raises(ShardError, match=r"Arrow|cut"):
            good(records(tmp_path))


def test_a_damaged_parquet_page_makes_its_rows_bad(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    numbers = pa.table({"x": pa.array([f"{n:06d}" * 50 for n in range(8)])})
    pq.write_table(numbers, path, row_group_size=4, compression="none", use_dictionary=False, write_page_checksum=True)
    content = bytearray(path.read_bytes())
    content[content.index(b"000001")] = ord("x")
    path.write_bytes(content)
    found = read_all(records(tmp_path))
    assert [isinstance(record, SampleError) for record in found] == [True] * 4 + [False] * 4
