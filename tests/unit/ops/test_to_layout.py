"""ToLayout: channels first or last."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stoker import ops
from stoker.backends.registry import compile_ops
from stoker.errors import SpecError
from support import pictures
from support.ops import image

NOISE = np.random.default_rng(0).integers(0, 256, (41, 60, 4), np.uint8)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_channels_come_first(channels: int, dtype: Any) -> None:
    picture = np.ascontiguousarray(NOISE[..., :channels]).astype(dtype)
    assert (image(ops.ToLayout("image", "NCHW"), picture) == picture.transpose(2, 0, 1)).all()
    assert (image(ops.ToLayout("image", "NHWC"), picture) == picture).all()


def test_numbers_can_be_moved_too() -> None:
    scaling = ops.Normalize("image", mean=(0.5, 0.4, 0.3), std=(0.1, 0.2, 0.3))
    chain = [ops.DecodeImage("image"), scaling, ops.ToLayout("image", "NCHW")]
    file = pictures.jpeg()
    assert (image(chain, file) == image(chain[:2], file).transpose(2, 0, 1)).all()


def test_an_op_after_it_is_refused_at_once() -> None:
    chain = [ops.DecodeImage("image"), ops.ToLayout("image", "NCHW"), ops.CenterCrop("image", 3)]
    with pytest.raises(SpecError, match=r"CenterCrop.*stands after ToLayout"):
        compile_ops(chain)
    compile_ops([*chain[:2], ops.DecodeImage("image"), ops.CenterCrop("image", 3)])
