"""Shards as bytes, and what is found when they are read back."""

from __future__ import annotations

import io
import tarfile

import pytest

from stoker.convert.layouts import ParquetBuilder, TarBuilder, compare, print_of, read_parquet, read_tar
from stoker.errors import DataError, ShardError

RECORDS = {
    "a/1": {"jpg": b"\xff\xd8" * 300, "cls": b"3"},
    "a/" + "n" * 150: {"seg.png": b"x" * 512, "empty": b""},
    "bücher/ü": {"txt": "Straße".encode()},
}
PRINTS = [print_of(key, fields) for key, fields in RECORDS.items()]


def built(builder: TarBuilder | ParquetBuilder) -> bytes:
    for key, fields in RECORDS.items():
        builder.add(key, fields)
    return builder.finish()


def test_a_tar_reads_back_by_our_parser_and_by_tarfile() -> None:
    payload = built(TarBuilder())
    assert list(read_tar("x", memoryview(payload))) == PRINTS
    with tarfile.open(fileobj=io.BytesIO(payload)) as tar:
        contents = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
        assert {(member.mtime, member.uid, member.gid, member.uname) for member in tar} == {(0, 0, 0, "")}
    assert contents == {f"{key}.{name}": value for key, fields in RECORDS.items() for name, value in fields.items()}


def test_a_parquet_shard_reads_back() -> None:
    payload = built(ParquetBuilder())
    assert list(read_parquet("x", memoryview(payload))) == PRINTS


@pytest.mark.parametrize("kind", [TarBuilder, ParquetBuilder])
def test_the_same_records_give_the_same_bytes(kind: type[TarBuilder | ParquetBuilder]) -> None:
    assert built(kind()) == built(kind())


def test_what_differs_is_named() -> None:
    found = [PRINTS[0], PRINTS[2], PRINTS[1]]
    with pytest.raises(DataError, match="record 1 came back as 'bücher/ü', written was 'a/nnn"):
        compare("x", PRINTS, iter(found))
    with pytest.raises(DataError, match="2 records came back, 3 were written"):
        compare("x", PRINTS, iter(PRINTS[:2]))
    with pytest.raises(DataError, match="written was 'no record'"):
        compare("x", PRINTS[:2], iter(PRINTS))
    compare("x", PRINTS, iter(PRINTS))


def test_a_flipped_byte_anywhere_is_found() -> None:
    payload = built(TarBuilder())
    for place in range(0, len(payload) - 1024, 97):
        damaged = bytearray(payload)
        damaged[place] ^= 1
        is_padding = list(read_or_none(damaged)) == PRINTS
        assert not is_padding or payload[place] == 0


def read_or_none(damaged: bytearray) -> list[object]:
    try:
        return list(read_tar("x", memoryview(damaged)))
    except ShardError:
        return []


def test_what_is_no_shard() -> None:
    with pytest.raises(ShardError, match="byte 0"):
        list(read_tar("x", memoryview(b"x" * 512)))
    with pytest.raises(ShardError, match="x: "):
        list(read_parquet("x", memoryview(b"x" * 512)))
