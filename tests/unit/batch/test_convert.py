"""A batch becomes arrays without a copy, and comes out of Arrow's IPC the same."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from stoker.batch import BatchBuilder, BufferPool, convert, to_jax, to_numpy, to_torch
from stoker.errors import MissingDependencyError
from support.samples import batch, column, sample, through_ipc


def rich_batch() -> pa.RecordBatch:
    rows = [
        {
            "image": np.full((4, 3), i, np.uint8),
            "weight": np.float32(i),
            "flag": i == 1,
            "half": torch.full((2,), i, dtype=torch.bfloat16),
            "ids": np.arange(i + 1),
            "caption": f"c{i}",
            "boxes": [[i, 2]],
            "meta": {"a": i, "b": (np.ones(2), None)},
        }
        for i in range(3)
    ]
    return batch(rows, ids="ragged")


def test_arrays_share_the_batchs_memory_and_can_be_written() -> None:
    made = rich_batch()
    first, second = to_numpy(made), to_torch(made)
    first["image"][0] = 77
    first["weight"][0] = 5
    assert (second["image"][0] == 77).all()
    assert second["weight"][0] == 5
    for name in ("image", "weight", "flag"):
        assert first[name].flags.writeable
    second["half"][0] = 3
    assert to_torch(made)["half"][0].tolist() == [3, 3]


def test_sample_numbers_are_not_shown_and_keys_are_a_list() -> None:
    fields = to_torch(rich_batch())
    assert list(fields) == ["__key__", "image", "weight", "flag", "half", "ids", "caption", "boxes", "meta"]
    assert fields["__key__"] == ["0", "1", "2"]


def test_a_batch_out_of_ipc_converts_the_same_and_can_be_written() -> None:
    made = rich_batch()
    travelled = to_torch(through_ipc(made))
    assert repr(travelled) == repr(to_torch(made))
    travelled["image"][:] = 1  # no warning about memory that may not be written, and no crash
    assert travelled["half"].dtype == torch.bfloat16


def test_a_slice_converts_to_its_rows() -> None:
    part = rich_batch().slice(1, 2)
    fields = to_numpy(part)
    assert fields["image"][:, 0, 0].tolist() == [1, 2]
    assert fields["weight"].tolist() == [1, 2]
    assert fields["flag"].tolist() == [True, False]
    assert [row.tolist() for row in fields["ids"]] == [[0, 1], [0, 1, 2]]
    assert fields["ids"].offsets[0] == 0
    assert fields["boxes"] == [[[1, 2]], [[2, 2]]]
    listed = column("x", [np.arange(i) for i in range(4)], "list").slice(2)
    assert [row.tolist() for row in to_numpy(listed)["x"]] == [[0, 1], [0, 1, 2]]


def test_chosen_columns_convert_alone() -> None:
    fields = to_numpy(rich_batch().select(["image", "meta.a"]))
    assert list(fields) == ["image", "meta"]
    assert fields["meta"]["a"].tolist() == [0, 1, 2]


def test_bfloat16_comes_to_numpy_with_its_values() -> None:
    halves = to_numpy(column("x", [torch.tensor([1.5, -2.0], dtype=torch.bfloat16)]))["x"]
    assert np.asarray(halves, np.float32).tolist() == [[1.5, -2.0]]


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16, torch.bool, torch.uint8, torch.complex64])
def test_tensors_come_back_in_their_dtype(dtype: torch.dtype) -> None:
    values = [torch.tensor([1.0, 0.0]).to(dtype), torch.tensor([0.0, 1.0]).to(dtype)]
    found = to_torch(column("x", values))["x"]
    assert found.dtype == dtype
    assert found.float().tolist() == [[1, 0], [0, 1]] if dtype != torch.complex64 else found.real[0, 0] == 1


def test_tensors_that_need_a_gradient_or_are_strided_can_travel() -> None:
    found = to_torch(column("x", [torch.arange(6.0).reshape(2, 3).T, torch.ones(3, 2, requires_grad=True)]))["x"]
    assert found[0].tolist() == [[0, 3], [1, 4], [2, 5]]


def test_pinning_without_cuda_warns_once_and_leaves_the_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(convert, "_warned", [])
    made = rich_batch()
    with pytest.warns(UserWarning, match="no CUDA device") as caught:
        fields = to_torch(made, pin_memory=True)
    to_torch(made, pin_memory=True)  # a second warning would be an error here
    assert caught[0].filename == __file__
    assert fields["image"].shape == (3, 4, 3)


def test_tensors_can_be_sent_to_a_device() -> None:
    fields = to_torch(rich_batch(), device="meta")
    assert fields["image"].device.type == "meta"
    assert fields["meta"]["b"][0].device.type == "meta"
    assert fields["caption"] == ["c0", "c1", "c2"]


def test_jax_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.setitem(sys.modules, "jax.numpy", None)
    with pytest.raises(MissingDependencyError, match="pip install jax"):
        to_jax(rich_batch())


def test_columns_that_stoker_did_not_make_convert_by_their_type() -> None:
    foreign = pa.record_batch(
        [pa.array([1.5, 2.5]), pa.array(["a", None]), pa.array([[1], [2, 3]])],
        schema=pa.schema([pa.field("x", pa.float64(), nullable=False), ("t", pa.utf8()), ("l", pa.list_(pa.int64()))]),
    )
    fields = to_numpy(foreign)
    assert fields["x"].tolist() == [1.5, 2.5]
    assert fields["t"] == ["a", None]
    assert fields["l"] == [[1], [2, 3]]


def test_a_class_of_another_process_is_a_dict_and_nothing_of_it_is_run() -> None:
    """A batch may come from anywhere: what it names is neither imported nor called."""

    @dataclass
    class Local:
        a: Any

    made = column("x", [Local(1), Local(2)])
    assert isinstance(to_numpy(made)["x"], Local)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, made.schema) as writer:
        writer.write_batch(made)
    script = (
        "import sys, pyarrow as pa; from stoker.batch import to_numpy\n"
        "made = pa.ipc.open_stream(sys.stdin.buffer.read()).read_next_batch()\n"
        "print(to_numpy(made)['x']['a'].tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=sink.getvalue().to_pybytes(), capture_output=True, check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert done.stdout.split() == [b"[1,", b"2]"]


def test_kept_tensors_stay_as_they_are_while_the_pool_goes_on() -> None:
    pool = BufferPool()
    kept = []
    for step in range(50):
        builder = BatchBuilder(2, pool, {})
        for row in range(2):
            builder.put(row, sample(row, x=np.full(5000, step, np.int32)))
        kept.append(to_torch(builder.finish(np.arange(2), None, {}))["x"])
        if step % 2:
            del kept[0]
    for tensor in kept:
        assert (tensor == tensor[0, 0]).all()
    assert sorted(int(tensor[0, 0]) for tensor in kept) == list(range(25, 50))
    assert pool.stats.num_reused > 0
