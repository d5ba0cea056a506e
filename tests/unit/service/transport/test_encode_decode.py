"""What is encoded, cut, sent and assembled is the same batch, in memory that may be written."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stoker.batch import BufferPool, Ragged, to_numpy, to_torch
from stoker.errors import ServiceError, StokerError
from stoker_service.transport.decode import Assembly
from stoker_service.transport.encode import MAX_SLICE_BYTES, MIN_SLICE_BYTES, Encoded, encode, slices
from support.batch_kinds import foreign, of_every_kind, pictures
from support.samples import column

KINDS = of_every_kind()
FOREIGN = foreign()


def there_and_back(batch: pa.RecordBatch, pool: BufferPool | None = None) -> pa.RecordBatch:
    """The batch after its way through slices."""
    encoded = encode(batch)
    assembly = Assembly(encoded.num_bytes, pool or BufferPool())
    for part in slices(encoded, MIN_SLICE_BYTES):
        assembly.add(part)
    return assembly.finish()


def arrays_in(value: Any) -> Iterator[NDArray[Any]]:
    """All arrays of what a batch became."""
    match value:
        case np.ndarray():
            yield value
        case dict():
            for part in value.values():
                yield from arrays_in(part)
        case list() | tuple():
            for part in value:
                yield from arrays_in(part)
        case Ragged():
            yield value.values


def assert_same(found: pa.RecordBatch, expected: pa.RecordBatch) -> None:
    found.validate(full=True)
    assert found.equals(expected, check_metadata=True)
    assert found.schema.equals(expected.schema, check_metadata=True)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_column_comes_back_equal(name: str) -> None:
    found = there_and_back(KINDS[name])
    assert_same(found, KINDS[name])
    assert repr(to_torch(found)) == repr(to_torch(KINDS[name]))


@pytest.mark.parametrize("name", FOREIGN)
def test_columns_of_other_types_come_back_equal(name: str) -> None:
    assert_same(there_and_back(FOREIGN[name]), FOREIGN[name])
    assert_same(there_and_back(FOREIGN[name].slice(1)), FOREIGN[name].slice(1))


@pytest.mark.parametrize("name", KINDS)
def test_slices_of_a_batch_come_back_equal(name: str) -> None:
    part = KINDS[name].slice(1, 2)
    assert_same(there_and_back(part), part)


@pytest.mark.parametrize("name", KINDS)
def test_arrays_of_a_decoded_batch_share_its_memory_and_can_be_written(name: str) -> None:
    found = there_and_back(KINDS[name])
    kind_is_copied = "bool" in name and "tensor" not in name  # bits of single bools are spread over bytes
    for first, second in zip(arrays_in(to_numpy(found)), arrays_in(to_numpy(found)), strict=True):
        assert first.flags.writeable
        if first.size and not kind_is_copied and first.dtype != np.bool_:
            assert np.shares_memory(first, second)


def test_tensors_are_written_in_place() -> None:
    found = there_and_back(KINDS["pictures"])
    to_torch(found)["image"][2] = 250
    assert (to_numpy(found)["image"][2] == 250).all()
    assert (to_numpy(KINDS["pictures"])["image"][2] == 2).all()


def test_memory_goes_back_to_the_pool_with_the_last_tensor() -> None:
    pool = BufferPool()
    found = there_and_back(pictures(20), pool)
    image = to_torch(found)["image"][3:4]
    del found
    gc.collect()
    assert pool.stats.idle_bytes == 0
    assert torch.all(image == 3)
    del image
    gc.collect()
    assert pool.stats.idle_bytes > 20 * 64 * 64 * 3
    there_and_back(pictures(20), pool)
    assert pool.stats.num_reused == 1


def test_large_columns_are_not_copied_while_encoding_and_cutting() -> None:
    batch = pictures(1000)
    pixels = batch.column("image").storage.values.buffers()[1]
    encoded = encode(batch)
    assert pixels.address in [piece.address for piece in encoded.pieces]
    cut = [part.column(0).buffers()[1] for part in slices(encoded, MAX_SLICE_BYTES)]
    inside = [part for part in cut if pixels.address <= part.address < pixels.address + pixels.size]
    assert sum(part.size for part in inside) == pixels.size
    assert len(cut) == len(inside) + 2  # what stands before, and behind
    assert max(part.size for part in cut) <= MAX_SLICE_BYTES


def test_one_row_may_be_larger_than_a_slice() -> None:
    batch = column("x", [np.arange(3_000_000)])
    assert len(list(slices(encode(batch), MIN_SLICE_BYTES))) >= 23
    assert_same(there_and_back(batch), batch)


def test_many_small_columns_share_slices() -> None:
    names = [f"c{i}" for i in range(300)]
    batch = pa.record_batch([pa.array(np.arange(1000))] * 300, names=names)
    assert len(list(slices(encode(batch), MIN_SLICE_BYTES))) <= 4
    assert_same(there_and_back(batch), batch)


@given(st.lists(st.integers(0, 3 * MIN_SLICE_BYTES), max_size=12), st.integers(0, 5 * MIN_SLICE_BYTES))
def test_slices_are_the_bytes_in_their_order(sizes: list[int], slice_bytes: int) -> None:
    source = np.resize(np.arange(251, dtype=np.uint8), max(sizes, default=0) + 300)
    pieces = tuple(pa.py_buffer(source[i : i + size]) for i, size in enumerate(sizes))
    cut = list(slices(Encoded(pieces, sum(sizes)), slice_bytes))
    assert b"".join(part.column(0).buffers()[1] for part in cut) == b"".join(pieces)
    assert all(0 < part.num_rows <= MAX_SLICE_BYTES for part in cut)


def test_the_encoded_bytes_are_an_arrow_stream_that_others_can_read() -> None:
    encoded = encode(KINDS["rich"])
    joined = b"".join(encoded.pieces)
    assert len(joined) == encoded.num_bytes
    assert_same(pa.ipc.open_stream(joined).read_next_batch(), KINDS["rich"])


def test_a_slice_that_starts_inside_its_buffer_is_added_from_its_first_byte() -> None:
    encoded = encode(KINDS["one-row"])
    joined = pa.array(np.frombuffer(b"xyz" + b"".join(encoded.pieces), np.uint8))
    assembly = Assembly(encoded.num_bytes, BufferPool())
    assembly.add(pa.record_batch([joined], names=["bytes"]).slice(3))
    assert_same(assembly.finish(), KINDS["one-row"])


def test_missing_bytes_may_be_asked_for_again() -> None:
    assembly = Assembly(100, BufferPool())
    assembly.add_bytes(bytes(60))
    assert assembly.num_missing == 40
    with pytest.raises(ServiceError, match="60 of 100 bytes"):
        assembly.finish()


def test_more_bytes_than_announced_are_refused() -> None:
    with pytest.raises(StokerError, match="10 bytes was announced and at least 11"):
        Assembly(10, BufferPool()).add_bytes(bytes(11))


@pytest.mark.parametrize("sent", [bytes(64), b"", encode(KINDS["rich"]).pieces[0].to_pybytes()[:-100]])
def test_bytes_that_are_no_batch_are_an_error_of_ours(sent: bytes) -> None:
    assembly = Assembly(len(sent), BufferPool())
    assembly.add_bytes(sent)
    with pytest.raises(StokerError, match="not an Arrow batch"):
        assembly.finish()
