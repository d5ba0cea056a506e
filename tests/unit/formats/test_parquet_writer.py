from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from stoker.errors import SpecError
from stoker.formats.parquet_writer import Row, encode_shard

NOISE = random.Random(3).randbytes(4000)


def opened(rows: list[Row], **options: Any) -> pq.ParquetFile:
    return pq.ParquetFile(io.BytesIO(encode_shard(rows, **options)), page_checksum_verification=True)


def group_sizes(file: pq.ParquetFile) -> list[int]:
    return [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]


def test_the_same_rows_are_the_same_bytes() -> None:
    rows: list[Row] = [
        ("a", {"jpg": NOISE, "cls": 1, "box": np.ones((2, 4), np.float32)}),
        ("b", {"jpg": b"", "cls": 2}),
    ]
    assert encode_shard(rows) == encode_shard(list(rows))


@pytest.mark.parametrize(
    "group_bytes, expected", [(1, [1] * 6), (2500, [2] * 3), (4999, [4, 2]), (1 << 20, [6])], ids=str
)
def test_groups_are_as_full_as_fits(group_bytes: int, expected: list[int]) -> None:
    rows: list[Row] = [(str(row), {"jpg": NOISE[:1200]}) for row in range(6)]
    assert group_sizes(opened(rows, group_bytes=group_bytes)) == expected


def test_bytes_that_do_not_shrink_stay_as_they_are() -> None:
    rows: list[Row] = [(str(row), {"jpg": NOISE[row::3], "json": b'{"a": 1}' * 500}) for row in range(3)]
    group = opened(rows).metadata.row_group(0)
    codecs = {group.column(at).path_in_schema: group.column(at).compression for at in range(group.num_columns)}
    assert codecs == {"__key__": "ZSTD", "jpg": "UNCOMPRESSED", "json": "ZSTD"}


def test_a_flipped_bit_is_found_by_any_reader() -> None:
    content = bytearray(encode_shard([("a", {"jpg": NOISE})]))
    content[content.index(NOISE) + 1000] ^= 1
    with pytest.raises(OSError, match="CRC"):
        pq.ParquetFile(io.BytesIO(content), page_checksum_verification=True).read()


def test_no_rows_are_a_file() -> None:
    assert opened([]).read().to_pylist() == []


def test_a_field_that_a_row_lacks_is_null() -> None:
    rows: list[Row] = [("a", {"x": 1}), ("b", {"box": np.zeros((1, 2))}), ("c", {})]
    assert opened(rows).read().to_pylist() == [
        {"__key__": "a", "x": 1, "box": None},
        {"__key__": "b", "x": None, "box": [[0.0, 0.0]]},
        {"__key__": "c", "x": None, "box": None},
    ]


def test_whole_numbers_and_fractions_are_one_column() -> None:
    assert opened([("a", {"x": 1}), ("b", {"x": 0.5})]).read().column("x").to_pylist() == [1.0, 0.5]


@pytest.mark.parametrize(
    "values, text",
    [
        ((1, b"1"), "bytes and int"),
        (("1", 1.5), "float and str"),
        (({"a": 1},), "holds a dict"),
        ((None, set()), "holds a set"),
        ((2**64,), "makes no column"),
        ((np.zeros((2, 3)), np.zeros((2, 4))), r"float64 of \(n, 3\) and float64 of \(n, 4\); make them agree"),
        ((np.zeros(2, np.int8), np.zeros(2)), r"float64 of \(n,\) and int8 of \(n,\)"),
        ((np.zeros((2, 0)),), "empty inner dimension"),
        ((np.array([1j]),), "makes no column"),
    ],
    ids=str,
)
def test_what_makes_no_column(values: tuple[Any, ...], text: str) -> None:
    rows = [(str(row), {"x": value}) for row, value in enumerate(values) if value is not None]
    with pytest.raises(SpecError, match=text) as caught:
        encode_shard(rows)
    assert "'x'" in str(caught.value)


def test_the_name_of_the_key_is_taken() -> None:
    with pytest.raises(SpecError, match="rename it"):
        encode_shard([("a", {"__key__": "b"})])
