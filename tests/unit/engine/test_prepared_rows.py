"""Samples come out of their bytes as they went in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from stoker.engine.prepared_entry import HEADER_BYTES, EntryError, Index, entry_bytes, header_of, index_of
from stoker.engine.prepared_rows import Row, UnstorableError, pack, unpack
from stoker.errors import SampleError

numbers = arrays.arrays(
    st.sampled_from(["u1", "i8", "f4", "f2", ">i4", "?", "c8"]),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
values = st.recursive(
    plain | numbers,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=6,
)


def assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray | np.generic):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            assert_same(found[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert found == expected or found != found  # noqa: PLR0124  # not a number


@given(st.dictionaries(st.text(), values, max_size=4), st.text())
def test_values_keep_their_types_and_bits(fields: dict[str, Any], key: str) -> None:
    row = unpack(pack(Row(key, fields, "CMYK to RGB")))
    assert (row.key, row.conversion, row.error, row.filtered) == (key, "CMYK to RGB", None, None)
    assert_same(dict(row.fields), fields)


def test_a_scalar_stays_one() -> None:
    found = unpack(pack(Row("k", {"cls": np.int64(7)}))).fields["cls"]
    assert type(found) is np.int64


def test_arrays_cannot_be_written_to_and_lie_in_order() -> None:
    found = unpack(pack(Row("k", {"a": np.arange(6).reshape(2, 3).T}))).fields["a"]
    assert not found.flags.writeable
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, np.arange(6).reshape(2, 3).T)


def test_a_view_of_raw_bytes_is_bytes() -> None:
    assert unpack(pack(Row("k", {"raw": memoryview(b"abc")[1:]}))).fields["raw"] == b"bc"


def test_verdicts_are_kept() -> None:
    assert unpack(pack(Row("k", {}, error=("cut short", "DecodeImage('jpg')")))).error == (
        "cut short",
        "DecodeImage('jpg')",
    )
    assert unpack(pack(Row("k", {}, filtered=2))).filtered == 2


class Broken:
    """A picture that cannot be decoded."""

    shape = (2, 3, 3)
    dtype = np.dtype(np.uint8)

    def writer(self, out: Any) -> Any:
        raise NotImplementedError

    def array(self) -> Any:
        raise SampleError("damaged", op="DecodeImage('jpg')")


def test_pixels_that_cannot_be_made_fail_only_when_they_are_looked_at() -> None:
    found = unpack(pack(Row("k", {"image": Broken()}))).fields["image"]
    assert (found.shape, found.dtype) == ((2, 3, 3), np.uint8)
    write = found.writer(np.empty((2, 3, 3), np.uint8))
    for fails in (write, found.array):
        with pytest.raises(SampleError, match="damaged") as caught:
            fails()
        assert caught.value.op == "DecodeImage('jpg')"


@pytest.mark.parametrize(
    "value", [object(), {1: 2}, np.array(["a"]), np.zeros(2, "i4,f4"), bytearray(b"x"), [object()]]
)
def test_what_cannot_be_kept_is_named(value: Any) -> None:
    with pytest.raises(UnstorableError, match="'odd'"):
        pack(Row("k", {"odd": value}))


IDENTITY = bytes(range(16))


def parsed(entry: bytes, identity: bytes = IDENTITY) -> Index:
    header = header_of(entry[:HEADER_BYTES], identity)
    return index_of(entry[HEADER_BYTES : HEADER_BYTES + header.index_bytes], header)


@given(st.lists(st.tuples(st.text(), st.binary(max_size=200)), max_size=5))
def test_rows_of_an_entry_are_found_each_by_itself(rows: list[tuple[str, bytes]]) -> None:
    entry = entry_bytes(IDENTITY, [key for key, _ in rows], [packed for _, packed in rows])
    index = parsed(entry)
    assert index.keys == tuple(key for key, _ in rows)
    for row, (_, packed) in enumerate(rows):
        offset, size, _ = index.rows[row]
        assert index.checked(row, entry[offset : offset + size]) == packed


def test_every_byte_that_matters_is_checked() -> None:
    entry = entry_bytes(IDENTITY, ["a", "b"], [b"first", b"second"])
    index = parsed(entry)
    used = set(range(HEADER_BYTES + header_of(entry[:HEADER_BYTES], IDENTITY).index_bytes))
    for offset, size, _ in index.rows:
        used |= set(range(offset, offset + size))
    for at in sorted(used):
        changed = bytearray(entry)
        changed[at] ^= 1
        with pytest.raises(EntryError):
            _checked(bytes(changed))
    for length in range(len(entry)):
        with pytest.raises(EntryError):
            _checked(entry[:length])


def _checked(entry: bytes) -> None:
    header = header_of(entry[:HEADER_BYTES], IDENTITY)
    if header.num_bytes != len(entry):
        raise EntryError("cut short")
    index = parsed(entry)
    for row, (offset, size, _) in enumerate(index.rows):
        index.checked(row, entry[offset : offset + size])


def test_an_entry_of_something_else_is_refused() -> None:
    with pytest.raises(EntryError, match="expected an entry"):
        parsed(entry_bytes(IDENTITY, [], []), bytes(16))
