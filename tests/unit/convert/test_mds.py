"""MDS folders, written after the published description."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stoker.convert.mds import MdsRecords
from stoker.errors import NotFoundError, SampleError, ShardError, SpecError
from stoker.formats.stores import Stores
from support import foreign_data, pictures
from support.records import fields_of, good, read_all

COLUMNS = {"image": "jpeg", "label": "int", "caption": "str", "score": "float32"}


def sample(number: int) -> dict[str, bytes]:
    return {
        "image": pictures.jpeg(number),
        "label": np.int64(number).tobytes(),
        "caption": f"Bild {number} ü".encode(),
        "score": np.float32(number / 4).tobytes(),
    }


def expected(number: int) -> dict[str, bytes]:
    score = str(np.float32(number / 4)).encode()
    caption = f"Bild {number} ü".encode()
    return {"caption": caption, "jpg": pictures.jpeg(number), "cls": str(number).encode(), "score": score}


def records(folder: Path, columns: tuple[str, ...] | None = None) -> MdsRecords:
    return MdsRecords(Stores(None), f"file://{folder}/", columns)


@pytest.mark.parametrize("compression", [None, "zstd", "zstd:7", "gz", "bz2", "br:11", "snappy"])
@pytest.mark.parametrize("seed", [None, 3])
def test_samples_of_raw_and_compressed_shards(tmp_path: Path, compression: str | None, seed: int | None) -> None:
    shards = [[sample(n) for n in range(5)], [sample(n) for n in range(5, 8)], [sample(8)]]
    foreign_data.write_mds(tmp_path, COLUMNS, shards, compression, hashes=("sha1", "md5"))
    found = good(records(tmp_path), seed)
    assert sorted(int(fields["cls"]) for fields in found) == list(range(9))
    assert all(fields == expected(int(fields["cls"])) for fields in found)
    assert ([int(fields["cls"]) for fields in found] == list(range(9))) == (seed is None)


@pytest.mark.parametrize(
    "encoding,raw,field,content",
    [
        ("bytes", b"\0\1", "x", b"\0\1"),
        ("str_int", b"123456789012345678901", "x", b"123456789012345678901"),
        ("str_float", b"0.5", "x", b"0.5"),
        ("png", pictures.png(), "x.png", pictures.png()),
        ("uint8", b"\xff", "x", b"255"),
        ("int32", np.int32(-7).tobytes(), "x", b"-7"),
        ("float64", np.float64(0.1).tobytes(), "x", b"0.1"),
        ("json", b'{"a": 1}', "x.json", b'{"a": 1}'),
    ],
)
def test_encodings(tmp_path: Path, encoding: str, raw: bytes, field: str, content: bytes) -> None:
    foreign_data.write_mds(tmp_path, {"x": encoding}, [[{"x": raw}]])
    assert good(records(tmp_path)) == [{field: content}]


def test_a_label_of_digits_is_the_label(tmp_path: Path) -> None:
    foreign_data.write_mds(tmp_path, {"label": "str_int"}, [[{"label": b"17"}, {"label": b"x"}]])
    found, bad = read_all(records(tmp_path))
    assert fields_of(found) == {"cls": b"17"}
    assert isinstance(bad, SampleError)


@pytest.mark.parametrize("encoding", ["ndarray", "ndarray:int32", "ndarray:int32:2,3"])
def test_arrays(tmp_path: Path, encoding: str) -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    raw = (
        array.tobytes() if encoding.endswith("2,3") else foreign_data.mds_array(array, with_dtype=encoding == "ndarray")
    )
    foreign_data.write_mds(tmp_path, {"x": encoding}, [[{"x": raw}]])
    (fields,) = good(records(tmp_path))
    assert np.array_equal(np.load(io.BytesIO(fields["x.npy"])), array)


def test_raw_pixels_become_png(tmp_path: Path) -> None:
    pixels = pictures.pixels(4)
    foreign_data.write_mds(tmp_path, {"image": "pil"}, [[{"image": foreign_data.mds_pil(pixels, "RGB")}]])
    (fields,) = good(records(tmp_path))
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(fields["png"]))), pixels)


def test_columns_are_chosen_and_pickles_refused(tmp_path: Path) -> None:
    columns = {"a": "bytes", "b": "pkl", "c": "int"}
    one = {"a": b"A", "b": b"pickle", "c": bytes(8)}
    foreign_data.write_mds(tmp_path, columns, [[one]])
    assert good(records(tmp_path, ("c", "a"))) == [{"a": b"A", "c": b"0"}]
    with pytest.raises(SpecError, match="'b' holds pickles"):
        records(tmp_path)
    with pytest.raises(SpecError, match="no column 'd'; it has: a, b, c"):
        records(tmp_path, ("d",))


def test_a_shard_that_is_missing_or_has_another_size(tmp_path: Path) -> None:
    foreign_data.write_mds(tmp_path, COLUMNS, [[sample(0)], [sample(1)]])
    second = tmp_path / "shard.00001.mds"
    content = second.read_bytes()
    second.write_bytes(content[:-1])
    with pytest.raises(ShardError, match=rf"has {len(content) - 1} bytes, index.json has {len(content)}"):
        records(tmp_path)
    second.unlink()
    with pytest.raises(NotFoundError, match=r"lacks the shard 'shard\.00001\.mds'"):
        records(tmp_path)


def test_a_damaged_compressed_shard_makes_its_samples_bad(tmp_path: Path) -> None:
    foreign_data.write_mds(tmp_path, COLUMNS, [[sample(0), sample(1)], [sample(2)]], "zstd", hashes=("sha1",))
    path = tmp_path / "shard.00000.mds.zstd"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    bad, other, fine = read_all(records(tmp_path))
    for found in (bad, other):
        assert isinstance(found, SampleError)
        assert "its sha1 is" in found.reason
    assert fields_of(fine) == expected(2)


def test_damaged_offsets(tmp_path: Path) -> None:
    foreign_data.write_mds(tmp_path, COLUMNS, [[sample(0), sample(1)]])
    path = tmp_path / "shard.00000.mds"
    content = bytearray(path.read_bytes())
    content[7] = 0xFF
    path.write_bytes(content)
    with pytest.raises(ShardError, match="the offsets of its samples are damaged"):
        read_all(records(tmp_path))
    content[:4] = b"\7\0\0\0"
    path.write_bytes(content)
    with pytest.raises(ShardError, match=r"index\.json says 2 samples, the shard says 7"):
        read_all(records(tmp_path))


def test_a_value_that_does_not_decode_is_a_bad_sample(tmp_path: Path) -> None:
    foreign_data.write_mds(tmp_path, {"x": "str"}, [[{"x": b"\xff"}, {"x": b"fine"}]])
    bad, fine = read_all(records(tmp_path))
    assert isinstance(bad, SampleError)
    assert "no UTF-8" in str(bad)
    assert fields_of(fine) == {"x": b"fine"}


@pytest.mark.parametrize("text", ["", "[]", '{"version": 2}', '{"version": 2, "shards": [{}]}'])
def test_an_index_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(ShardError, match="no index of MDS shards"):
        records(tmp_path)


def test_other_versions_and_formats(tmp_path: Path) -> None:
    foreign_data.write_mds(tmp_path, COLUMNS, [[sample(0)]])
    index = json.loads((tmp_path / "index.json").read_text())
    index["shards"][0]["format"] = "jsonl"
    (tmp_path / "index.json").write_text(json.dumps(index))
    with pytest.raises(SpecError, match="format 'jsonl'"):
        records(tmp_path)
    (tmp_path / "index.json").write_text(json.dumps({**index, "version": 3}))
    with pytest.raises(SpecError, match="version 3"):
        records(tmp_path)
