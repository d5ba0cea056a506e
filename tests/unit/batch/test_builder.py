"""Rows land where they belong, whoever puts them first."""

from __future__ import annotations

import threading
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from stoker.batch import BatchBuilder, BufferPool, empty, num_bytes, to_numpy
from stoker.errors import CollateError, SampleError
from support.samples import Picture, batch, sample, through_ipc

SHAPE = (4, 5, 3)


def put_pictures(num_rows: int, **collate: str) -> BatchBuilder:
    builder = BatchBuilder(num_rows, BufferPool(), collate)  # type: ignore[arg-type]  # modes as plain text
    for i in range(num_rows):
        builder.put(i, sample(i, image=Picture(SHAPE, i), cls=np.int64(10 * i)))
    return builder


def colours(made: pa.RecordBatch) -> list[int]:
    image = to_numpy(made)["image"]
    assert (image == image[:, :1, :1, :1]).all()
    return [int(colour) for colour in image[:, 0, 0, 0]]


def test_a_batch_has_its_fields_keys_and_sample_numbers() -> None:
    made = put_pictures(3).finish(np.arange(3), None, {"position": "7"})
    assert made.schema.names == ["__key__", "__sample__", "image", "cls"]
    assert made.column("__key__").to_pylist() == ["0", "1", "2"]
    assert made.column("__sample__").to_pylist() == [0, 1, 2]
    assert made.column("cls").to_pylist() == [0, 10, 20]
    assert made.schema.field("image").type.equals(pa.fixed_shape_tensor(pa.uint8(), SHAPE))
    assert made.schema.metadata[b"position"] == b"7"
    assert colours(made) == [0, 1, 2]
    made.validate(full=True)


def test_pixels_are_written_straight_into_the_batch() -> None:
    pool = BufferPool()
    builder = BatchBuilder(2, pool, {})
    places = []

    class Spy(Picture):
        def write(self, out: np.ndarray) -> None:
            places.append(out.ctypes.data)
            assert out.flags.c_contiguous
            super().write(out)

    for i in range(2):
        builder.put(i, sample(i, image=Spy(SHAPE, i)))
    image = to_numpy(builder.finish(np.arange(2), None, {}))["image"]
    assert [image[i].ctypes.data for i in range(2)] == places
    assert image.ctypes.data % 64 == 0
    assert pool.stats.num_taken == 1


@pytest.mark.parametrize(
    "rows",
    [[0, 1, 2, 3], [0, 0, 2, 3], [3, 1, 2, 3], [1, 0, 3, 2], [0, 1, 1, 2, 3], [0, 2, 3], [0, 1], [3], [2, 2, 2, 2], []],
    ids=str,
)
def test_any_rows_can_be_shown(rows: list[int]) -> None:
    mask = np.array([row == i for i, row in enumerate(rows)], np.bool_)
    made = put_pictures(4).finish(np.array(rows, np.int64), mask, {})
    assert colours(made) == rows
    assert made.column("cls").to_pylist() == [10 * row for row in rows]
    assert made.column("__key__").to_pylist() == [str(row) for row in rows]
    assert made.column("__sample__").to_pylist() == rows
    assert made.column("__mask__").to_pylist() == mask.tolist()
    made.validate(full=True)


def test_a_replaced_row_costs_one_copy_and_no_new_memory() -> None:
    pool = BufferPool()
    builder = BatchBuilder(3, pool, {})
    for i in (0, 2):
        builder.put(i, sample(i, image=Picture(SHAPE, i)))
    made = builder.finish(np.array([0, 2, 2]), np.array([True, False, True]), {})
    assert colours(made) == [0, 2, 2]
    assert pool.stats.num_taken == 1


def test_an_empty_batch_keeps_dtypes_and_shapes() -> None:
    made = put_pictures(2).finish(np.array([], np.int64), None, {})
    fields = to_numpy(made)
    assert made.num_rows == 0
    assert fields["image"].shape == (0, *SHAPE)
    assert fields["image"].dtype == np.uint8
    assert fields["cls"].dtype == np.int64
    assert fields["__key__"] == []
    assert to_numpy(through_ipc(made))["image"].shape == (0, *SHAPE)


def test_a_batch_of_nothing_at_all() -> None:
    made = BatchBuilder(4, BufferPool(), {}).finish(np.array([], np.int64), np.array([], np.bool_), {})
    assert made.num_rows == 0
    assert made.schema.names == ["__key__", "__sample__", "__mask__"]


def test_a_bad_sample_leaves_its_row_to_another() -> None:
    builder = BatchBuilder(3, BufferPool(), {})
    with pytest.raises(SampleError, match="cut short"):
        builder.put(0, sample(0, image=Picture((9, 9, 3), 0, bad=True), cls=0))  # and it was first, with another shape
    builder.put(1, sample(1, image=Picture(SHAPE, 1), cls=1))
    builder.put(2, sample(2, image=Picture(SHAPE, 2), cls=2))
    made = builder.finish(np.array([2, 1, 2]), np.array([False, True, True]), {})
    assert colours(made) == [2, 1, 2]
    assert made.column("cls").to_pylist() == [2, 1, 2]


def test_a_row_that_was_not_put_cannot_be_shown() -> None:
    builder = BatchBuilder(2, BufferPool(), {})
    builder.put(0, sample(0, cls=1))
    with pytest.raises(ValueError, match="row 1 is asked for"):
        builder.finish(np.arange(2), None, {})


def test_the_batch_does_not_depend_on_who_was_first() -> None:
    fields: list[dict[str, Any]] = [{"b": 1, "a": "x"}, {"a": "y", "b": 2.5}, {"a": "z", "b": 3, "c": None}]
    found = set()
    for order in permutations(range(3)):
        builder = BatchBuilder(3, BufferPool(), {})
        for row in order:
            builder.put(row, sample(row, **fields[row]))
        made = builder.finish(np.arange(3), None, {})
        found.add(str(made.schema) + str(made.to_pylist()))
    assert len(found) == 1
    assert "b: double" in found.pop()


def test_the_error_does_not_depend_on_who_was_first() -> None:
    shapes = [(3, 5, 5), (3, 5, 5), (3, 6, 5)]
    found = set()
    for order in permutations(range(3)):
        builder = BatchBuilder(3, BufferPool(), {})
        for row in order:
            builder.put(row, sample(row, x=np.zeros(shapes[row])))
        with pytest.raises(CollateError) as caught:
            builder.finish(np.arange(3), None, {})
        found.add(str(caught.value))
    assert len(found) == 1


def test_threads_put_different_rows_at_the_same_time() -> None:
    builder = BatchBuilder(64, BufferPool(), {})
    barrier = threading.Barrier(8)

    def work(first: int) -> None:
        barrier.wait(10)
        for i in range(first, 64, 8):
            builder.put(i, sample(i, image=Picture(SHAPE, i), cls=i, text=str(i)))

    threads = [threading.Thread(target=work, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = builder.finish(np.arange(64), None, {})
    assert colours(made) == list(range(64))
    assert made.column("text").to_pylist() == [str(i) for i in range(64)]


@pytest.mark.parametrize("name", ["__key__", "__sample__"])
def test_stokers_own_names_are_refused(name: str) -> None:
    with pytest.raises(CollateError, match=f"{name}.*taken by Stoker.*Rename"):
        batch([{name: 1}])


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(CollateError, match=r"'a\.b'.*two fields"):
        batch([{"a": {"b": 1}, "a.b": 2}])


def test_num_bytes_counts_what_the_batch_keeps_alive() -> None:
    pixels = 3 * int(np.prod(SHAPE))
    assert pixels <= num_bytes(put_pictures(3).finish(np.arange(3), None, {})) <= pixels + 500


def test_a_filler_has_the_columns_of_a_real_batch() -> None:
    fields = {
        "image": np.ones((2, 3), np.float32), "flag": True, "cls": 1, "text": "x", "raw": b"x", "none": None,
        "list": [1], "meta": {"a": 1, "b": (np.ones(2), "x")}, "tokens": np.arange(3),
        "parts": np.arange(2), "padded": np.arange(2),
    }  # fmt: skip
    real = batch([fields, fields], tokens="ragged", parts="list", padded="pad")
    made = empty(3, real.schema, BufferPool(), {"position": "1"})
    assert made.schema.names == ["__key__", "__sample__", "__mask__", *real.schema.names[2:]]
    for name in real.schema.names:
        assert made.schema.field(name) == real.schema.field(name)
    assert made.schema.metadata[b"position"] == b"1"
    found = to_numpy(through_ipc(made))
    assert found["__mask__"].tolist() == [False] * 3
    assert found["__key__"] == [""] * 3
    assert made.column("__sample__").to_pylist() == [-1] * 3
    assert found["image"].shape == (3, 2, 3)
    assert not found["image"].any()
    assert found["meta"]["b"][0].tolist() == [[0, 0]] * 3
    assert [row.tolist() for row in found["tokens"]] == [[], [], []]
    assert found["text"] == ["", "", ""]
    assert found["list"] == found["parts"] == found["none"] == [None] * 3


def test_a_filler_without_a_model_has_the_reserved_columns_only() -> None:
    assert to_numpy(empty(2, None, BufferPool(), {})).keys() == {"__key__", "__mask__"}
