"""Cast against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from stoker import ops
from stoker.errors import SampleError, SpecError
from support.ops import image, run

NOISE = np.random.default_rng(0).integers(0, 256, (41, 60, 3), np.uint8)
SCALING = ops.Normalize("image", (0.5, 0.4, 0.3), (0.1, 0.2, 0.3))
DTYPES: Any = ["float16", "float32", "float64", "int32", "int64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_pictures_get_the_dtype(dtype: Any) -> None:
    out = image(ops.Cast("image", dtype), NOISE)
    assert out.dtype == dtype
    assert (out == NOISE).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_are_rounded_as_numpy_does_wherever_channels_stand(dtype: Any) -> None:
    first = ops.ToLayout("image", "NCHW")
    expected = image(SCALING, NOISE).astype(dtype)
    assert (image([SCALING, ops.Cast("image", dtype)], NOISE) == expected).all()
    assert (image([SCALING, ops.Cast("image", dtype), first], NOISE) == expected.transpose(2, 0, 1)).all()
    assert (image([SCALING, first, ops.Cast("image", dtype)], NOISE) == expected.transpose(2, 0, 1)).all()


@pytest.mark.parametrize("value", [3, 2.5, True, np.float64(1.5), np.arange(3), torch.arange(3)], ids=repr)
def test_any_numbers_can_be_cast(value: Any) -> None:
    out = run(ops.Cast("x", "float16"), {"x": value}).fields["x"]
    assert out.dtype == np.float16
    assert np.array_equal(out, np.asarray(value))


def test_bfloat16_is_a_tensor() -> None:
    out = run([SCALING, ops.Cast("image", "bfloat16")], {"image": NOISE}).fields["image"]
    assert torch.equal(out, torch.from_numpy(image(SCALING, NOISE)).bfloat16())


def test_what_holds_no_numbers_is_a_bad_sample() -> None:
    with pytest.raises(SampleError, match="field 'x' holds str, not numbers"):
        run(ops.Cast("x", "float16"), {"x": "a"})


def test_an_unknown_dtype_is_refused() -> None:
    wrong: Any = "float8"
    with pytest.raises(SpecError, match=r"Cast.*dtype.*float8"):
        ops.Cast("x", wrong)
