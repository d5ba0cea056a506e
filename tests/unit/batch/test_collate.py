"""Fields whose samples differ: each mode, and the error that says which mode would do."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from stoker.batch import Ragged, to_numpy, to_torch
from stoker.errors import CollateError
from support.samples import Picture, batch, column, through_ipc


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass
class Box:
    corner: Any
    label: Any


def there_and_back(values: list[Any], mode: str = "stack") -> Any:
    """What the column becomes, straight and through Arrow's IPC, which must agree."""
    made = column("x", values, mode)
    made.validate(full=True)
    found = to_numpy(made)["x"]
    again = to_numpy(through_ipc(made))["x"]
    assert repr(again) == repr(found)
    return found


@pytest.mark.parametrize(
    "values, dtype",
    [
        ([1, 2], np.int64),
        ([2**63, 1], np.uint64),
        ([1.5, 2.0], np.float64),
        ([1, 2.5], np.float64),
        ([True, False], np.bool_),
        ([True, 3], np.int64),
        ([np.float32(1), np.float32(2)], np.float32),
        ([np.uint8(1), np.uint8(2)], np.uint8),
        ([np.float16(1), np.float16(2)], np.float16),
        ([np.bool_(True), np.bool_(False)], np.bool_),
        ([np.datetime64("2026-01-01", "s"), np.datetime64("2026-01-02", "s")], np.dtype("datetime64[s]")),
        ([np.complex64(1 + 2j), np.complex64(3)], np.complex64),
        ([np.array(1.5), np.array(2.5)], np.float64),
    ],
    ids=str,
)
def test_numbers_become_one_array_of_their_dtype(values: list[Any], dtype: Any) -> None:
    found = there_and_back(values)
    assert found.dtype == dtype
    assert found.tolist() == np.array(values, dtype).tolist()
    assert found.flags.writeable


def test_integers_never_become_floats() -> None:
    with pytest.raises(CollateError, match="integers below 0 and above"):
        column("x", [-1, 2**63])


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint16", "int64", "float16", "float32", "float64", "complex64", "datetime64[ns]", ">f4"]
)
def test_arrays_of_one_shape_are_stacked(dtype: str) -> None:
    values = [np.arange(6).reshape(2, 3).astype("int64").astype(dtype) + i * 0 for i in range(3)]
    if dtype == "bool":
        values = [value.astype(bool) for value in values]
    found = there_and_back(values)
    assert found.dtype == np.dtype(dtype).newbyteorder("=")
    assert np.array_equal(found, np.stack(values))


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0)])
def test_arrays_without_elements_are_stacked(shape: tuple[int, ...]) -> None:
    for mode in ("stack", "pad"):
        assert there_and_back([np.zeros(shape)] * 2, mode).shape == (2, *shape)
    assert [row.shape for row in there_and_back([np.zeros(shape)] * 2, "ragged")] == [shape] * 2
    assert [row.shape for row in there_and_back([np.zeros(shape)] * 2, "list")] == [shape] * 2


def test_different_shapes_name_the_field_both_shapes_both_keys_and_the_modes() -> None:
    with pytest.raises(CollateError) as caught:
        column("x", [np.zeros((3, 5, 5)), np.zeros((3, 5, 5)), np.zeros((3, 6, 5))])
    text = str(caught.value)
    for part in ("'x'", "(3, 5, 5)", "(3, 6, 5)", "'0'", "'2'", '"pad" or "list"'):
        assert part in text
    assert "ragged" not in text


def test_ragged_is_offered_where_it_would_do() -> None:
    with pytest.raises(CollateError, match='"pad" or "ragged" or "list"'):
        column("x", [np.zeros((5, 4)), np.zeros((6, 4))])
    with pytest.raises(CollateError, match='with "list"'):
        column("x", [np.zeros(5), np.zeros((6, 4))])


def test_pictures_of_different_size_are_an_error_under_stack_only() -> None:
    pictures = [Picture((2, 2, 3), 1), Picture((3, 2, 3), 2)]
    with pytest.raises(CollateError, match=r"\(2, 2, 3\).*\(3, 2, 3\)"):
        column("x", pictures)
    assert [row.shape for row in there_and_back(pictures, "list")] == [(2, 2, 3), (3, 2, 3)]
    padded = there_and_back(pictures, "pad")
    assert padded.shape == (2, 3, 2, 3)
    assert padded[0, 2].max() == 0


def test_pad_fills_with_zeros_at_the_end_and_tells_the_lengths() -> None:
    fields = to_torch(column("x", [np.array([1, 2]), np.array([], np.int64), np.array([3, 4, 5])], "pad"))
    assert fields["x"].tolist() == [[1, 2, 0], [0, 0, 0], [3, 4, 5]]
    assert fields["x_length"].tolist() == [2, 0, 3]
    wide = to_numpy(column("x", [np.ones((1, 3)), np.ones((2, 2))], "pad"))
    assert wide["x"].tolist() == [[[1, 1, 1], [0, 0, 0]], [[1, 1, 0], [1, 1, 0]]]
    assert wide["x_length"].tolist() == [[1, 3], [2, 2]]


@pytest.mark.parametrize("mode", ["pad", "ragged"])
def test_lists_of_numbers_are_padded_and_ragged_too(mode: str) -> None:
    fields = to_numpy(column("x", [[1, 2], [], [3.5]], mode))
    assert [row[:2].tolist() for row in fields["x"]] == (
        [[1, 2], [0, 0], [3.5, 0]] if mode == "pad" else [[1, 2], [], [3.5]]
    )
    boxes = to_numpy(column("x", [[], [[1, 2, 3, 4]]], mode))["x"]
    assert boxes[0].shape == ((1, 4) if mode == "pad" else (0, 4))
    assert boxes[1].tolist() == [[1, 2, 3, 4]]


def test_ragged_is_values_and_offsets() -> None:
    rows = [np.arange(8, dtype=np.float32).reshape(2, 4), np.zeros((0, 4), np.float32), np.ones((1, 4), np.float32)]
    found = there_and_back(rows, "ragged")
    assert isinstance(found, Ragged)
    assert found.offsets.tolist() == [0, 2, 2, 3]
    assert found.values.shape == (3, 4)
    assert len(found) == 3
    for row, again, by_index in zip(rows, found, [found[0], found[1], found[-1]], strict=True):
        assert np.array_equal(row, again)
        assert np.array_equal(row, by_index)
    assert len(found[1:]) == 2
    with pytest.raises(IndexError):
        found[3]


def test_ragged_fits_torchs_jagged_tensors() -> None:
    found = to_torch(column("x", [np.arange(2.0), np.arange(3.0)], "ragged"))["x"]
    found[0][1] = 7  # a view
    assert found.values.tolist() == [0, 7, 0, 1, 2]
    lengths = [found.offsets[i + 1] - found.offsets[i] for i in range(2)]
    assert [int(length) for length in lengths] == [2, 3]


def test_bool_and_bfloat16_are_ragged_and_padded_as_well() -> None:
    assert [row.tolist() for row in there_and_back([np.array([True]), np.array([False, True])], "ragged")] == [
        [True],
        [False, True],
    ]
    halves = [torch.ones(2, dtype=torch.bfloat16), torch.ones(1, dtype=torch.bfloat16)]
    for mode in ("ragged", "pad", "list"):
        rows = to_torch(column("x", halves, mode))["x"]
        assert [row.dtype for row in rows] == [torch.bfloat16] * 2


@pytest.mark.parametrize("mode", ["pad", "ragged"])
def test_pad_and_ragged_say_what_they_cannot_take(mode: str) -> None:
    with pytest.raises(CollateError, match=r"'1' has None.*needs arrays"):
        column("x", [np.zeros(3), None], mode)
    with pytest.raises(CollateError, match="sample '1' has a list that is not an array"):
        column("x", [[1], ["a"]], mode)
    with pytest.raises(CollateError, match=r"\(3,\).*\(2, 2\)"):
        column("x", [np.zeros(3), np.zeros((2, 2))], mode)


def test_the_length_column_of_pad_may_not_meet_a_field() -> None:
    with pytest.raises(CollateError, match=r"'x_length'.*two fields"):
        batch([{"x": np.zeros(2), "x_length": 2}], x="pad")


def test_list_keeps_arrays_of_any_shape_and_dtype() -> None:
    values: list[Any] = [np.zeros((2, 3), np.float32), np.array(7, np.int16), np.array([True]), None, np.zeros((0, 4))]
    found = there_and_back(values, "list")
    for value, again in zip(values, found, strict=True):
        if value is None:
            assert again is None
        else:
            assert again.dtype == value.dtype
            assert again.shape == value.shape
            assert np.array_equal(again, value)
            assert again.flags.writeable
            assert again.flags.aligned


def test_list_keeps_mixed_plain_values() -> None:
    values = [1, None, 2.5, "a", [1, "b"], {"k": [None]}, True]
    assert there_and_back(values, "list") == values


@pytest.mark.parametrize("dtypes", [("float32", "float64"), ("int64", "int32")])
def test_arrays_of_different_dtype_are_an_error(dtypes: tuple[str, str]) -> None:
    with pytest.raises(CollateError, match=f"dtype {dtypes[0]}.*dtype|has {dtypes[1]}"):
        column("x", [np.zeros(2, dtype) for dtype in dtypes])


@pytest.mark.parametrize(
    "values",
    [
        ["a", "b"], ["", "é🙂"], ["a", None], [None, None], [b"a", b""], [b"a", None], [[], []], [[1, 2], []],
        [["a"], [1, None]], [[(1, 2)], [(3,)]], [[[1], {"k": 1.5}], []], [[float("inf")], [2**70]],
    ],
    ids=str,
)  # fmt: skip
def test_plain_values_pass_through(values: list[Any]) -> None:
    assert there_and_back(values) == values


def test_bytes_like_values_become_bytes() -> None:
    assert there_and_back([memoryview(b"abcd")[1:3], bytearray(b"x")]) == [b"bc", b"x"]


@pytest.mark.parametrize("values", [[1, None], [None, np.zeros(2)], ["a", 1], [[1], "a"], [b"a", "a"]], ids=str)
def test_values_of_different_kinds_are_an_error(values: list[Any]) -> None:
    with pytest.raises(CollateError, match=r"'x'.*'0'.*'1'.*default=.*list"):
        column("x", values)


def test_a_field_that_a_sample_lacks_is_an_error_unless_its_kind_has_none() -> None:
    with pytest.raises(CollateError, match="sample '1' has nothing"):
        batch([{"x": 1}, {}])
    assert to_numpy(batch([{}, {"t": "a"}]))["t"] == [None, "a"]
    assert to_numpy(batch([{"x": 1}, {}], x="list"))["x"] == [1, None]


def test_nested_values_become_columns_in_their_form() -> None:
    rows = [
        {"meta": {"size": (i, i + 1), "box": Box(np.full(2, i), f"b{i}"), "p": Point(i, None), "e": {}, "u": ()}}
        for i in range(2)
    ]
    made = batch(rows)
    assert "meta.size.0" in made.schema.names
    for source in (made, through_ipc(made)):
        meta = to_numpy(source)["meta"]
        assert list(meta) == ["size", "box", "p", "e", "u"]
        assert isinstance(meta["size"], tuple)
        assert meta["size"][1].tolist() == [1, 2]
        assert isinstance(meta["box"], Box)
        assert meta["box"].corner.tolist() == [[0, 0], [1, 1]]
        assert meta["box"].label == ["b0", "b1"]
        assert isinstance(meta["p"], Point)
        assert meta["p"].x.tolist() == [0, 1]
        assert meta["p"].y == [None, None]
        assert meta["e"] == {}
        assert meta["u"] == ()


def test_a_list_of_arrays_is_a_structure() -> None:
    crops = [[np.full((2, 2), i), np.full((3,), 10 + i)] for i in range(2)]
    found = to_torch(column("x", crops))["x"]
    assert [tuple(crop.shape) for crop in found] == [(2, 2, 2), (2, 3)]
    with pytest.raises(CollateError, match=r"has a list of 2 and sample '1' has a list of 1"):
        column("x", [crops[0], crops[1][:1]])


def test_nested_forms_that_differ_name_both_and_list_keeps_them() -> None:
    values = [{"a": 1}, {"a": 2, "b": [1]}]
    with pytest.raises(
        CollateError, match=r"'0' has a dict of 1 with a and sample '1' has a dict of 2 with a, b.*list"
    ):
        column("x", values)
    assert there_and_back(values, "list") == values
    with pytest.raises(CollateError, match="'1' has a value that is not nested"):
        column("x", [{"a": 1}, None])
    with pytest.raises(CollateError, match="no such field"):
        batch([{"x": {"a": 1}}, {}])


def test_modes_reach_the_parts_of_a_nested_field() -> None:
    rows = [{"m": {"ids": np.arange(i + 1), "other": np.arange(i)}} for i in range(2)]
    found = to_numpy(batch(rows, m="pad", **{"m.other": "ragged"}))["m"]
    assert found["ids"].tolist() == [[0, 0], [0, 1]]
    assert isinstance(found["other"], Ragged)


def test_other_mappings_come_back_as_dicts() -> None:
    assert to_numpy(column("x", [OrderedDict(b=1, a="t")]))["x"] == {"b": np.array([1]), "a": ["t"]}


@pytest.mark.parametrize(
    "value, part",
    [
        ({1, 2}, "set"), (Path(), "Path"), (object(), "object"), (np.array([object()]), "dtype object"),
        (np.array(["a"]), "dtype str"), (2**70, "64 bits"), (1j, "complex"),
        ({(1,): 2}, "neither strings nor integers"),
        ([{1, 2}], "holds a set"), ([{1: 2}], "keys that are not strings"), ({"k": {1, 2}}, "set"),
    ],
)  # fmt: skip
def test_what_cannot_travel_is_named_with_the_rule(value: Any, part: str) -> None:
    with pytest.raises(CollateError, match=r"'x'.*a field may hold numbers") as caught:
        column("x", [value])
    assert part in str(caught.value)
