"""TFRecord files with Examples that protobuf itself encoded."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.convert.example import parse, values
from stoker.convert.tfrecord import TfRecords, is_frame, masked_crc
from stoker.errors import SampleError
from stoker.formats.stores import Stores
from support import foreign_data, pictures
from support.records import fields_of, good, read_all


def records(*paths: Path, columns: tuple[str, ...] | None = None) -> TfRecords:
    stores = Stores(None)
    return TfRecords(stores, "", stores.heads([f"file://{path}" for path in paths]), columns)


def imagenet(number: int) -> bytes:
    return foreign_data.example(
        image__encoded=pictures.jpeg(number),
        image__class__label=[number],
        image__class__text=f"Klasse {number}".encode(),
        image__object__bbox__xmin=[0.25, 0.5],
        image__height=[48],
    )


@pytest.mark.parametrize("gzipped", [False, True])
@pytest.mark.parametrize("seed", [None, 5])
def test_records_of_several_files(tmp_path: Path, gzipped: bool, seed: int | None) -> None:
    paths = [tmp_path / f"train-{n:05d}-of-00003" for n in range(3)]
    for file, path in enumerate(paths):
        foreign_data.write_tfrecords(path, [imagenet(n) for n in range(file * 4, file * 4 + 4)], gzipped=gzipped)
    found = good(records(*paths), seed)
    assert sorted(int(fields["cls"]) for fields in found) == list(range(12))
    for fields in found:
        number = int(fields["cls"])
        assert fields["jpg"] == pictures.jpeg(number)
        assert fields["image.class.text"] == f"Klasse {number}".encode()
        assert fields["image.height"] == b"48"
        assert np.load(io.BytesIO(fields["image.object.bbox.xmin.npy"])).tolist() == [0.25, 0.5]


def test_features_are_chosen(tmp_path: Path) -> None:
    path = foreign_data.write_tfrecords(tmp_path / "a.tfrecord", [imagenet(1)])
    assert good(records(path, columns=("image/height",))) == [{"image.height": b"48"}]


@pytest.mark.parametrize("at,said", [(12, "its checksum is"), (-1, "its checksum is")])
def test_a_flipped_byte_is_one_bad_record(tmp_path: Path, at: int, said: str) -> None:
    frames = [foreign_data.frame(imagenet(n)) for n in range(3)]
    damaged = bytearray(frames[1])
    damaged[at] ^= 0x10
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames[0] + damaged + frames[2])
    first, bad, last = read_all(records(path))
    assert isinstance(bad, SampleError)
    assert said in bad.reason
    assert bad.origin is not None
    assert bad.origin.row == 1
    assert (fields_of(first)["cls"], fields_of(last)["cls"]) == (b"0", b"2")


@pytest.mark.parametrize(
    "cut,said", [(-1, "the file is cut at byte"), (3, "inside the length"), (0, "the length's checksum is wrong")]
)
def test_what_follows_a_broken_frame_is_lost_and_said(tmp_path: Path, cut: int, said: str) -> None:
    frames = [foreign_data.frame(imagenet(n)) for n in range(2)]
    broken = b"\xff" * 30 if cut == 0 else frames[1][:cut]
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames[0] + broken)
    source = records(path)
    with ThreadPoolExecutor(1) as pool:
        survey = source.survey(pool)
    assert survey.part_rows.tolist() == [1]
    (problem,) = survey.problems
    assert said in str(problem)
    assert str(path) in str(problem)


def test_a_cut_gzip_file_gives_what_it_has(tmp_path: Path) -> None:
    path = foreign_data.write_tfrecords(tmp_path / "a.tfrecord.gz", [imagenet(n) for n in range(20)], gzipped=True)
    path.write_bytes(path.read_bytes()[:-2000])
    assert 0 < len(good(records(path))) < 20


def test_the_masked_checksum() -> None:
    assert masked_crc(b"123456789") == (((0xE3069283 >> 15) | (0xE3069283 << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    assert is_frame(foreign_data.frame(b"x")[:12])
    assert not is_frame(b"PAR1" + bytes(8))
    assert not is_frame(b"")


lists = st.one_of(
    st.lists(st.binary(max_size=20)),
    st.lists(st.integers(-(2**63), 2**63 - 1)),
    st.lists(st.floats(width=32, allow_nan=False)),
)


@given(st.dictionaries(st.sampled_from("abcdef"), lists, max_size=4))
def test_an_example_is_read_as_protobuf_wrote_it(features: dict[str, list[bytes] | list[int] | list[float]]) -> None:
    found = parse(memoryview(foreign_data.example(**features)))
    assert {name: [bytes(v) if isinstance(v, memoryview) else v for v in listed] for name, listed in found.items()} == {
        name: listed if not listed or not isinstance(listed[0], float) else np.array(listed, np.float32).tolist()
        for name, listed in features.items()
    }
    assert list(found) == sorted(found)


def varint(number: int) -> bytes:
    head = b""
    while number > 0x7F:
        head += bytes([number & 0x7F | 0x80])
        number >>= 7
    return head + bytes([number])


def delimited(content: bytes) -> bytes:
    return varint(len(content)) + content


def messages(depth: int) -> st.SearchStrategy[bytes]:
    """Bytes that are a message for protobuf, with fields of any kind, ``depth`` layers of them."""
    inside = st.binary(max_size=9)
    if depth:
        inside = st.one_of(messages(depth - 1), messages(depth - 1), inside)
    kinds = st.one_of(
        st.tuples(st.just(2), inside.map(delimited)),
        st.tuples(st.just(0), st.integers(0, 2**70 - 1).map(varint)),
        st.tuples(st.sampled_from([1, 5]), st.binary(min_size=8, max_size=8)),
    )
    fields = st.builds(lambda number, kind: varint(number << 3 | kind[0]) + kind[1], st.integers(1, 4), kinds)
    return st.lists(fields, min_size=1, max_size=3).map(b"".join)


def in_example(entry: bytes) -> bytes:
    return b"\x0a" + delimited(b"\x0a" + delimited(entry))


@settings(max_examples=1000)
@given(st.one_of(messages(2).map(in_example), messages(2), st.binary(max_size=60)))
def test_any_bytes_are_an_example_or_a_bad_sample(body: bytes) -> None:
    try:
        values(parse(memoryview(body)))
    except SampleError:
        return


def test_an_example_that_is_cut_anywhere_is_a_bad_sample() -> None:
    body = foreign_data.example(numbers=[1, 300], floats=[0.5], names=[b"a", b"b"])
    for stop in range(1, len(body)):
        with pytest.raises(SampleError, match=r"are left|breaks off"):
            parse(memoryview(body[:stop]))


def test_unpacked_numbers_and_entries_that_come_twice() -> None:
    unpacked = bytes([0x1A, 4, 0x08, 5, 0x08, 6])  # int64_list { value: 5 value: 6 }
    entry = bytes([0x0A, 1, ord("n"), 0x12, len(unpacked)]) + unpacked
    features = bytes([0x0A, len(entry)]) + entry
    message = bytes([0x0A, len(features)]) + features
    (numbers,) = parse(memoryview(message)).values()
    assert list(numbers) == [5, 6]
    assert list(parse(memoryview(message + message))) == ["n"]


def test_numbers_that_are_no_whole_floats_or_longer_than_64_bits() -> None:
    floats = b"\x12" + delimited(b"\x0a" + delimited(bytes(5)))
    with pytest.raises(SampleError, match="5 bytes of floats"):
        parse(memoryview(in_example(b"\x12" + delimited(floats))))
    integers = b"\x1a" + delimited(b"\x08" + varint(2**70 - 1))
    (numbers,) = parse(memoryview(in_example(b"\x12" + delimited(integers)))).values()
    assert list(numbers) == [-1]


def test_a_sequence_example_is_named() -> None:
    with pytest.raises(SampleError, match="SequenceExample"):
        parse(memoryview(bytes([0x12, 0])))


def test_several_byte_strings_are_fields_under_numbers() -> None:
    found = values(parse(memoryview(foreign_data.example(names=[b"a", b"b"], none=[]))))
    assert {name: bytes(value) for name, value in found.items() if isinstance(value, memoryview)} == {
        "names.0": b"a",
        "names.1": b"b",
    }
