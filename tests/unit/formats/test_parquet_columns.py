from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from stoker.errors import SampleError
from stoker.formats.parquet_columns import is_readable, key_column, values_of
from support.parquet import plain

DAY = dt.date(2026, 3, 1)
MOMENT = dt.datetime(2026, 3, 1, 12, 30)  # noqa: DTZ001  # Parquet has times without a zone
PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def both_ways(values: list[Any], kind: pa.DataType) -> list[list[Any]]:
    """The values as a column of one chunk, and as slices of a longer one: offsets must be respected."""
    whole = pa.array(values, kind)
    padded = pa.concat_arrays([pa.array(values[:1], kind), whole, pa.array(values[-1:], kind)])
    return [
        values_of(pa.chunked_array([whole])),
        values_of(pa.chunked_array([padded.slice(1, 2), padded.slice(3, len(values) - 2)])),
    ]


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int8(), pa.binary()), pa.binary(2)],
    ids=str,
)
def test_bytes_are_views(kind: pa.DataType) -> None:
    for found in both_ways([b"ab", None, b"cd", b"ef"], kind):
        assert all(value is None or (isinstance(value, memoryview) and value.readonly) for value in found)
        assert [plain(value) for value in found] == [b"ab", None, b"cd", b"ef"]


def test_views_share_the_memory_of_the_column() -> None:
    column = pa.array([b"one", b"two"])
    first, second = values_of(pa.chunked_array([column]))
    assert first.obj is second.obj
    assert isinstance(first, memoryview)
    assert np.shares_memory(np.frombuffer(first, np.uint8), np.frombuffer(column.buffers()[2], np.uint8))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_text_is_text(kind: pa.DataType) -> None:
    for found in both_ways(["é", None, "", "text"], kind):
        assert found == ["é", None, "", "text"]


@pytest.mark.parametrize(
    "kind, values",
    [
        (pa.int8(), [-1, None, 3, 4]),
        (pa.uint64(), [2**63, None, 3, 4]),
        (pa.float16(), [0.5, None, -3, 4]),
        (pa.float64(), [0.1, None, float("inf"), 4]),
        (pa.bool_(), [True, None, False, True]),
    ],
    ids=str,
)
def test_numbers_keep_their_type(kind: pa.DataType, values: list[Any]) -> None:
    for found in both_ways(values, kind):
        assert {value.dtype for value in found if value is not None} == {np.dtype(kind.to_pandas_dtype())}
        assert [plain(value) for value in found] == values


def test_dates_are_those_of_numpy() -> None:
    for found in both_ways([DAY, None, DAY, DAY], pa.date32()):
        assert found == [np.datetime64(DAY), None, np.datetime64(DAY), np.datetime64(DAY)]
    for found in both_ways([MOMENT, None, MOMENT, MOMENT], pa.timestamp("ms")):
        assert found[2] == np.datetime64(MOMENT, "ms")


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.int32()), pa.large_list(pa.int32()), pa.list_(pa.list_(pa.int32(), 2)), pa.list_(pa.int32(), 2)],
    ids=str,
)
def test_lists_of_numbers_are_arrays(kind: pa.DataType) -> None:
    is_nested = pa.types.is_fixed_size_list(kind.value_type)
    values: list[Any] = [[[1, 2], [3, 4]], None, [[5, 6]], []] if is_nested else [[1, 2], None, [3, 4], [5, 6]]
    for found in both_ways(values, kind):
        assert {value.dtype for value in found if value is not None} == {np.dtype(np.int32)}
        assert not any(value.flags.writeable for value in found if value is not None)
        assert [plain(value) for value in found] == values


def test_a_list_with_a_null_is_a_bad_value_of_its_row() -> None:
    for found in both_ways([[1, 2], [3, None], [4], []], pa.list_(pa.int64())):
        assert isinstance(found[1], SampleError)
        assert "null" in found[1].reason
        assert [plain(value) for value in (found[0], found[2], found[3])] == [[1, 2], [4], []]


def test_tensors_have_their_shape() -> None:
    made = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12, dtype=np.float32).reshape(2, 3, 2))
    found = values_of(pa.chunked_array([made]))
    assert [plain(value) for value in found] == np.arange(12).reshape(2, 3, 2).tolist()


def test_a_picture_of_hugging_face_is_its_bytes() -> None:
    values = [{"bytes": b"ab", "path": "a.jpg"}, None, {"bytes": None, "path": "b.jpg"}, {"bytes": b"c", "path": None}]
    for found in both_ways(values, PICTURE):
        assert [plain(value) for value in found] == [b"ab", None, None, b"c"]


@pytest.mark.parametrize(
    "kind, values, expected",
    [
        (pa.decimal128(5, 2), [decimal.Decimal("1.50"), None, None], ["1.50", None, None]),
        (pa.struct([("a", pa.int8())]), [{"a": 1}, None, {"a": None}], ['{"a": 1}', None, '{"a": null}']),
        (pa.list_(pa.string()), [["é"], [], None], ['["é"]', "[]", None]),
        (pa.list_(pa.list_(pa.int8())), [[[1], []], [], None], ["[[1], []]", "[]", None]),
        (pa.null(), [None, None, None], [None, None, None]),
    ],
    ids=str,
)
def test_what_else_is_json_or_text(kind: pa.DataType, values: list[Any], expected: list[Any]) -> None:
    assert values_of(pa.chunked_array([pa.array(values, kind)])) == expected


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.binary()), pa.struct([("a", pa.binary())]), pa.list_(PICTURE), pa.map_(pa.string(), pa.binary())],
)
def test_bytes_inside_are_no_field(kind: pa.DataType) -> None:
    assert not is_readable(kind)


@pytest.mark.parametrize("kind", [pa.binary(), PICTURE, pa.map_(pa.string(), pa.int8()), pa.time64("us"), pa.uuid()])
def test_what_can_be_a_field(kind: pa.DataType) -> None:
    assert is_readable(kind)


def test_bytes_that_are_no_text_are_a_bad_value() -> None:
    column = pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xff", b"a"]).buffers())
    bad, good = values_of(pa.chunked_array([column]))
    assert isinstance(bad, SampleError)
    assert good == "a"


def test_an_empty_column() -> None:
    for kind in (pa.binary(), pa.string(), pa.int64(), pa.bool_(), pa.list_(pa.int8()), PICTURE):
        assert values_of(pa.chunked_array([pa.array([], kind)])) == []


@pytest.mark.parametrize(
    "names, expected",
    [
        ({"key": pa.string(), "__key__": pa.string()}, "__key__"),
        ({"key": pa.large_string(), "jpg": pa.binary()}, "key"),
        ({"key": pa.dictionary(pa.int8(), pa.string())}, "key"),
        ({"key": pa.int64()}, ""),
        ({"jpg": pa.binary()}, ""),
    ],
)
def test_which_column_is_the_key(names: dict[str, pa.DataType], expected: str) -> None:
    assert key_column(pa.schema(list(names.items()))) == expected
