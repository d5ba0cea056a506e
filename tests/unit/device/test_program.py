"""Ops on the device give what the cpu back-end's kernels give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from stoker import ops
from stoker.device.program import DeviceProgram, Step, steps_of
from stoker.errors import SpecError
from stoker.ops.op import Op
from support.ops import image

NORMALIZE = ops.Normalize("image", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
FIRST = ops.ToLayout("image", "NCHW")
RANDOM = np.random.default_rng(0)
LEVELS = np.arange(256, dtype=np.uint8).repeat(3).reshape(16, 16, 3)
NOISE = RANDOM.integers(0, 256, (16, 16, 3), np.uint8)


def run(device_ops: list[Op], tensor: Any, **more: Any) -> Any:
    fields, _ = DeviceProgram(steps_of(device_ops)).run({"image": tensor, **more})
    return fields["image"]


def half() -> Op:
    return ops.Cast("image", "float16")


CHAINS: dict[str, list[Op]] = {
    "normalize": [NORMALIZE],
    "one mean": [ops.Normalize("image", (0.5,), (0.3,))],
    "normalize, layout": [NORMALIZE, FIRST],
    "normalize, layout, cast": [NORMALIZE, FIRST, half()],
    "normalize, cast, layout": [NORMALIZE, half(), FIRST],
    "normalize, whole numbers": [NORMALIZE, ops.Cast("image", "int32")],
    "layout": [FIRST],
    "layout, cast": [FIRST, half()],
    "cast": [half()],
    "cast twice": [half(), ops.Cast("image", "float32")],
    "cast, normalize": [half(), NORMALIZE],
    "last": [ops.ToLayout("image", "NHWC")],
}


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.float32])
@pytest.mark.parametrize("chain", CHAINS)
def test_values_are_those_of_the_cpu_back_end_bit_by_bit(chain: str, dtype: Any) -> None:
    pictures = np.stack([LEVELS, NOISE]).astype(dtype) * dtype(100 if dtype in (np.uint16, np.int32) else 1)
    expected = np.stack([image(CHAINS[chain], picture) for picture in pictures])
    before = pictures.copy()
    found = run(CHAINS[chain], torch.from_numpy(pictures))
    assert found.numpy().dtype == expected.dtype
    assert found.is_contiguous()
    np.testing.assert_array_equal(found.numpy(), expected)
    np.testing.assert_array_equal(pictures, before)


def test_bfloat16_rounds_once() -> None:
    found = run([NORMALIZE, ops.Cast("image", "bfloat16")], torch.from_numpy(NOISE[None]))
    assert torch.equal(found, run([NORMALIZE], torch.from_numpy(NOISE[None])).bfloat16())


def test_values_do_not_depend_on_torchs_default_dtype() -> None:
    expected = run([NORMALIZE], torch.from_numpy(NOISE[None]))
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(run([NORMALIZE], torch.from_numpy(NOISE[None])), expected)
    finally:
        torch.set_default_dtype(torch.float32)


def test_ops_on_one_field_become_few_steps() -> None:
    label = ops.Cast("cls", "int32")
    assert steps_of([NORMALIZE, label, FIRST, half()]) == [
        Step("image", NORMALIZE, is_channels_first=True, dtype="float16"),
        Step("cls", dtype="int32"),
    ]
    assert len(steps_of([half(), NORMALIZE, half(), half()])) == 3


def test_any_field_can_be_cast() -> None:
    program = DeviceProgram(steps_of([ops.Cast("cls", "int32")]))
    fields, replaced = program.run({"cls": torch.tensor([1, 2]), "__key__": ["a", "b"]})
    assert fields["cls"].dtype == torch.int32
    assert fields["__key__"] == ["a", "b"]
    assert replaced[0].dtype == torch.int64


@pytest.mark.parametrize(
    "device_ops, match",
    [
        ([ops.CenterCrop("image", 3)], r"CenterCrop\('image'\) is not done on a device, only Normalize"),
        (["Normalize"], "'Normalize' is not done on a device"),
        ([FIRST, NORMALIZE], r"Normalize\('image'\) stands after ToLayout\('image'\), which must be the last"),
        ([FIRST, FIRST], r"ToLayout\('image'\) stands after ToLayout"),
    ],
    ids=["crop", "text", "after layout", "twice"],
)
def test_what_cannot_be_done_is_refused_at_once(device_ops: list[Any], match: str) -> None:
    with pytest.raises(SpecError, match=match):
        steps_of(device_ops)


def test_what_the_pipeline_has_put_first_is_refused() -> None:
    with pytest.raises(SpecError, match=r"Normalize\('image'\) stands after ToLayout\('image'\) of the pipeline"):
        steps_of([NORMALIZE], [FIRST])
    steps_of([half()], [FIRST])


@pytest.mark.parametrize(
    "op, value, match",
    [
        (NORMALIZE, torch.zeros(2, 3, 4), r"field 'image' has the shape \(2, 3, 4\); expected rows × height"),
        (NORMALIZE, torch.zeros(2, 3, 4, 1), "3 means for pictures of 1 channels"),
        (FIRST, torch.zeros(5), "expected rows"),
        (half(), ["a"], "is a list, not a tensor"),
    ],
    ids=["flat", "grey", "numbers", "text"],
)
def test_fields_that_do_not_fit_are_named(op: Op, value: Any, match: str) -> None:
    with pytest.raises(SpecError, match=f"device_ops: field 'image'.*{match}" if "field" not in match else match):
        run([op], value)


def test_a_field_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(SpecError, match="field 'other' is not in the batch, which has 'image', 'cls'"):
        run([ops.Cast("other", "int32")], torch.zeros(1), cls=torch.zeros(1))
