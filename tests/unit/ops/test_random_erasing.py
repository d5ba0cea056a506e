"""RandomErasing against torchvision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torchvision.transforms.v2 as tv

from stoker import ops
from stoker.errors import SpecError
from support.ops import image

NOISE = np.random.default_rng(0).integers(1, 255, (41, 60, 3), np.uint8)


def draws(seed: int) -> list[float]:
    return [0.0, *np.random.default_rng(seed).random(23).tolist()]


@pytest.mark.parametrize("value", [0.0, (1.0, 2.0, 3.0)])
def test_pixels_are_those_of_torchvision(value: float | tuple[float, ...]) -> None:
    op = ops.RandomErasing("image", value=value)
    for seed in range(5):
        window = op.window(41, 60, draws(seed))
        assert window is not None
        fill = torch.tensor(value).reshape(-1, 1, 1)
        expected = tv.functional.erase(torch.from_numpy(NOISE).permute(2, 0, 1), *window, fill)
        assert (image(op, NOISE, draws(seed)) == expected.permute(1, 2, 0).numpy()).all()


def test_rectangles_follow_torchvisions_law() -> None:
    op = ops.RandomErasing("image")
    ours = np.array([op.window(224, 200, draws(seed)) for seed in range(3000)])
    torch.manual_seed(0)
    theirs = []
    blank = torch.zeros(3, 224, 200)
    for _ in range(3000):
        made = tv.RandomErasing(p=1.0).make_params([blank])
        theirs.append([made["i"], made["j"], made["h"], made["w"]])
    for column in range(4):
        for quantile in (0.05, 0.25, 0.5, 0.75, 0.95):
            a, b = (np.quantile(values[:, column], quantile) for values in (ours, np.array(theirs)))
            assert abs(a - b) <= 9


def test_noise_is_normal_and_belongs_to_its_draws() -> None:
    op = ops.RandomErasing("image", value="random", scale=(0.3, 0.33))
    blank = np.zeros((200, 200, 3), np.float32)
    erased = image(op, blank, draws(1))
    noise = erased[erased != 0]
    assert abs(noise.mean()) < 0.05
    assert noise.std() == pytest.approx(1, abs=0.05)
    assert (erased == image(op, blank, draws(1))).all()
    assert image(op, NOISE, draws(1)).dtype == np.uint8


def test_a_picture_is_left_alone_by_chance_and_where_nothing_fits() -> None:
    assert ops.RandomErasing("image").window(41, 60, [0.5, *[0.5] * 23]) is None
    assert ops.RandomErasing("image", p=1.0).window(1, 1, [0.0, *[0.5] * 23]) is None
    assert (image(ops.RandomErasing("image"), NOISE, [0.9, *[0.5] * 23]) == NOISE).all()


def test_wrong_arguments_are_named() -> None:
    for wrong in ({"p": 2.0}, {"scale": (0.5, 0.1)}, {"ratio": (0.0, 1.0)}, {"value": "noise"}):
        with pytest.raises(SpecError, match=next(iter(wrong))):
            ops.RandomErasing("image", **wrong)
