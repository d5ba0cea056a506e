"""Ranges as slices and back."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import ServiceError
from stoker_service.transport.encode import MAX_SLICE_BYTES, Encoded, slices
from stoker_service.worker.range_bytes import NO_BYTES, cut, joined

MIB = 1 << 20


@given(st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=20), st.lists(st.integers(1, 400)))
def test_however_the_bytes_are_cut_the_bodies_come_back(bodies: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(bodies)
    bounds = sorted({0, len(whole), *(place for place in cuts if place < len(whole))})
    parts = [
        batch
        for start, stop in itertools.pairwise(bounds)
        for batch in (NO_BYTES, *slices(Encoded((pa.py_buffer(whole[start:stop]),), stop - start), MIB))
    ]
    assert [bytes(body) for body in joined(parts, [len(body) for body in bodies])] == bodies


@pytest.mark.parametrize("sizes", [[1], [3 * MIB, 700 << 10, 1, 20], [MIB] * 5, [9 * MIB + 3, 5]])
def test_there_and_back(sizes: list[int]) -> None:
    bodies = [memoryview(bytes([index + 1]) * size) for index, size in enumerate(sizes)]
    parts = list(cut(bodies))
    assert max(len(part) for part in parts) <= MAX_SLICE_BYTES
    assert joined(parts, sizes) == bodies


def test_what_is_large_is_not_copied() -> None:
    body = pa.py_buffer(bytes(MIB))
    (part,) = cut([memoryview(body)])
    assert part.column(0).buffers()[1].address == body.address
    (back,) = joined([part], [MIB])
    assert pa.py_buffer(back).address == body.address


def test_bytes_that_are_missing_or_too_many_are_errors() -> None:
    parts = list(cut([memoryview(b"12345")]))
    with pytest.raises(ServiceError, match="fewer bytes"):
        joined(parts, [6])
    with pytest.raises(ServiceError, match="more bytes"):
        joined(parts, [4])
    with pytest.raises(ServiceError, match="more bytes"):
        joined([*parts, *parts], [5])
