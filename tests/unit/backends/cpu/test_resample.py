"""Each route gives the pixels it promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from stoker.backends.cpu import resample
from stoker.ops.sampling import Sampling

NOISE = np.random.default_rng(0).integers(0, 256, (110, 150, 4), np.uint8)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("channels", [1, 3])
def test_without_torch_pixels_are_exactly_pillows(
    monkeypatch: pytest.MonkeyPatch, interpolation: Any, channels: int
) -> None:
    monkeypatch.setattr(resample, "torch_here", lambda: None)
    picture = NOISE[..., :channels]
    as_pillow = Image.fromarray(np.ascontiguousarray(picture if channels == 3 else picture[..., 0]))
    for height, width in ((40, 60), (110, 30), (200, 300), (1, 1)):
        out = np.zeros((height, width, channels), np.uint8)
        resample.resizer(picture.shape, out, Sampling(interpolation, antialias=True))(picture)
        expected = np.asarray(as_pillow.resize((width, height), Image.Resampling[interpolation.upper()]))
        assert (out == expected.reshape(out.shape)).all()


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_what_comes_in_may_be_a_view_and_is_left_alone(antialias: bool, channels: int, dtype: Any) -> None:
    whole = NOISE.astype(dtype)
    before = whole.copy()
    view = whole[5:90, 7:99, :channels]
    view.setflags(write=False)
    from_view, from_copy = (np.zeros((31, 47, channels), dtype) for _ in range(2))
    resample.resizer(view.shape, from_view, Sampling("bilinear", antialias))(view)
    resample.resizer(np.ascontiguousarray(view).shape, from_copy, Sampling("bilinear", antialias))(
        np.ascontiguousarray(view)
    )
    assert (from_view == from_copy).all()
    assert (whole == before).all()


def test_wide_numbers_are_not_clipped_to_bytes() -> None:
    wide = np.linspace(0, 65535, 64 * 64).reshape(64, 64, 1).astype(np.uint16)
    out = np.zeros((16, 16, 1), np.uint16)
    resample.resizer(wide.shape, out, Sampling("bilinear", antialias=True))(wide)
    assert out.max() > 60_000
