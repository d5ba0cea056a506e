"""The demo's model learns, so its accuracy says that pictures and labels belong together."""

from __future__ import annotations

import numpy as np

from stoker_bench.toy_model import SoftmaxRegression


def test_it_learns_to_tell_colours_apart() -> None:
    rng = np.random.default_rng(0)
    model = SoftmaxRegression(3)
    right = 0.0
    for _ in range(30):
        labels = rng.integers(3, size=32)
        images = rng.integers(0, 60, size=(32, 64, 64, 3), dtype=np.uint8)
        images[np.arange(32), :, :, labels] += 100
        right = model.step(images, labels)
    assert right > 95
