"""Batches copied in few copies. The device is the CPU here; tests/gpu has the same on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from stoker.batch import to_torch
from stoker.batch.ragged import Ragged
from stoker.device.copier import Copier, OnDevice
from stoker.device.program import DeviceProgram, steps_of
from stoker.ops.cast import Cast
from support.samples import batch, through_ipc

LARGE = (200, 200, 3)


def copied(made: Any, *device_ops: Any, **device_fields: Any) -> OnDevice:
    return Copier("cpu", DeviceProgram(steps_of(device_ops))).copy(made, device_fields)


def rich() -> Any:
    rows = [
        {
            "image": np.full(LARGE, i, np.uint8),
            "flag": i == 1,
            "half": torch.full((2,), i, dtype=torch.bfloat16),
            "ids": np.arange(i + 1),
            "caption": f"c{i}",
            "boxes": [[i, 2]],
            "empty": np.zeros((0, 3), np.float32),
            "meta": {"a": i, "b": (np.ones(2), None)},
        }
        for i in range(3)
    ]
    return batch(rows, ids="ragged")


CHANGES = {"as made": lambda made: made, "out of IPC": through_ipc, "cut": lambda made: made.slice(1, 2)}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_values_and_forms_are_those_without_a_device(change: Any) -> None:
    made = change(rich())
    on_device = copied(made)
    fields = on_device.hand_over()
    expected = to_torch(made)
    assert repr(fields) == repr(expected)
    assert list(fields) == list(expected)
    assert isinstance(fields["ids"], Ragged)
    for name in ("image", "flag", "half", "empty"):
        assert torch.equal(fields[name], expected[name])
        assert fields[name].dtype == expected[name].dtype
    assert on_device.num_copies == 2  # the pictures, and all that is small


def test_what_is_small_does_not_keep_what_is_large() -> None:
    fields = copied(rich()).fields
    kept = fields["flag"].untyped_storage()
    assert kept.nbytes() < 4096
    assert kept.data_ptr() == fields["meta"]["a"].untyped_storage().data_ptr()
    assert fields["image"].untyped_storage().nbytes() == fields["image"].nbytes


def test_a_list_of_arrays_is_one_copy_whatever_their_dtypes() -> None:
    kinds = [(30001, "uint8"), (9999, "float64"), (0, "int64"), (3, "float16")]
    arrays = [np.arange(size, dtype=dtype) for size, dtype in kinds]
    made = batch([{"x": array} for array in arrays], x="list")
    on_device = copied(made)
    assert on_device.num_copies == 1
    assert 0 <= on_device.num_bytes - sum(array.nbytes for array in arrays) < 3 * 64
    for found, array in zip(on_device.fields["x"], arrays, strict=True):
        assert found.numpy().dtype == array.dtype
        assert (found.numpy() == array).all()


def test_long_ragged_columns_are_one_copy_beside_the_offsets() -> None:
    made = batch([{"x": np.arange(20000) + i} for i in range(2)], x="ragged")
    on_device = copied(made)
    assert on_device.num_copies == 2
    assert [int(row[0]) for row in on_device.fields["x"]] == [0, 1]


def test_texts_alone_need_no_copy() -> None:
    on_device = copied(batch([{"caption": "a"}]).drop_columns(["__sample__"]))
    assert (on_device.num_copies, on_device.num_bytes) == (0, 0)
    assert on_device.fields["caption"] == ["a"]


def test_fields_made_on_the_device_follow_and_go_through_the_ops() -> None:
    made = batch([{"cls": 1}])
    on_device = copied(made, Cast("late", "float16"), late=torch.ones(1, 2))
    assert list(on_device.fields) == ["__key__", "cls", "late"]
    assert on_device.fields["late"].dtype == torch.float16
    assert on_device.num_copies == 1


def test_the_memory_that_is_handed_over_is_known_and_what_was_replaced_is_not_in_it() -> None:
    on_device = copied(rich(), Cast("image", "float32"))
    known = {tensor.untyped_storage().data_ptr() for tensor in on_device.tensors}
    fields = on_device.fields
    used = [fields["image"], fields["flag"], fields["ids"].values, fields["meta"]["a"]]
    assert known == {tensor.untyped_storage().data_ptr() for tensor in used}


def test_host_memory_is_not_shared() -> None:
    made = rich()
    fields = copied(made).fields
    fields["image"][:] = 77
    assert to_torch(made)["image"][0, 0, 0, 0] == 0
