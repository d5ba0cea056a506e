"""What a GPU decodes and augments is what ``cpu`` makes: the same samples, windows, verdicts; pixels alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Backend, ops
from stoker.backends.tolerances import TOLERANCES
from stoker.errors import SampleError
from support import pictures
from support.loading import load, tar_of
from support.shards import make_broken_shard

pytestmark = pytest.mark.gpu

NUM_SAMPLES = 64
PLACEMENTS: dict[str, Any] = {
    "mixed": "mixed",
    "gpu": "gpu",
    "decode on the CPU": {"DecodeImage": "cpu", "RandomResizedCrop": "gpu", "RandomHorizontalFlip": "gpu"},
    "decode alone on the GPU": {"DecodeImage": "mixed", "RandomResizedCrop": "cpu", "RandomHorizontalFlip": "cpu"},
}
LIMITS = {each.chain: each.mixed.mean for each in TOLERANCES}
MEAN = LIMITS["imagenet_train"]
"""Of 255: what two decoders and two resizes may differ by, on average over a picture."""


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Good pictures of many sizes, and every third one odd or broken."""
    strange = [*pictures.odd().values(), *pictures.broken().values(), pictures.damaged_scan()]
    content = {
        f"{row:04d}": {
            "jpg": strange[row // 3 % len(strange)] if row % 3 == 1 else pictures.jpeg(row, 80 + row, 150 - row),
            "cls": str(row).encode(),
        }
        for row in range(NUM_SAMPLES)
    }
    return tar_of(tmp_path_factory.mktemp("mixed") / "a.tar", content)


def over(shard: str, *more: Any, strict: bool = False, **settings: Any) -> stoker.Pipeline:
    """A pipeline that crops and flips at random."""
    chain = [
        ops.DecodeImage("jpg", to="image", strict=strict),
        ops.Label("cls"),
        ops.RandomResizedCrop("image", 48, scale=(0.3, 1.0)),
        ops.RandomHorizontalFlip("image"),
        *more,
    ]
    return stoker.Pipeline(
        stoker.tar(shard), chain, **{"batch_size": 8, "shuffle": True, "on_error": "replace", **settings}
    )


def assert_alike(expected: dict[str, Any], found: dict[str, Any], most: float = MEAN) -> None:
    """The same samples, labels and mask; every picture alike."""
    assert list(found) == list(expected)
    assert found["__key__"] == expected["__key__"]
    np.testing.assert_array_equal(found["cls"], expected["cls"])
    if "__mask__" in expected:
        np.testing.assert_array_equal(found["__mask__"], expected["__mask__"])
    assert found["image"].shape == expected["image"].shape
    assert found["image"].dtype == expected["image"].dtype
    differences = np.abs(found["image"].astype(np.float64) - expected["image"])
    for key, difference in zip(expected["__key__"], differences, strict=True):
        assert difference.mean() <= most, f"{key} differs by {difference.mean():.2f} on average"


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_samples_windows_verdicts_and_pixels_are_those_of_cpu(
    shard: str, dali: str, placement: str, strict: bool
) -> None:
    pipeline = over(shard, strict=strict)
    backend = Backend("dali", device=dali, placement=PLACEMENTS[placement])
    with load(pipeline) as ours, load(pipeline, backend=backend) as theirs:
        for expected, found in zip(ours, theirs, strict=True):
            assert_alike(expected, found)
            assert theirs.state_dict() == ours.state_dict()
        for counter in ("bad_samples", "filtered_samples", "conversions"):
            assert theirs.stats()[counter] == ours.stats()[counter]


def test_ops_that_dali_lacks_stand_between_those_that_it_has(shard: str, dali: str) -> None:
    """Hue goes from the GPU to the CPU's kernel, and what follows to the GPU again, in the order of the pipeline."""
    pipeline = over(shard, ops.ColorJitter("image", 0.2, hue=0.1), ops.CenterCrop("image", 40))
    with load(pipeline) as ours, load(pipeline, backend=Backend("dali", device=dali)) as theirs:
        for expected, found in zip(ours, theirs, strict=True):
            assert_alike(expected, found, most=LIMITS["colour"])


def test_floats_are_made_on_the_gpu(shard: str, dali: str) -> None:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    pipeline = over(shard, ops.Normalize("image", mean=mean, std=std), ops.ToLayout("image", "NCHW"))
    with load(pipeline) as ours, load(pipeline, backend=Backend("dali", device=dali)) as theirs:
        for expected, found in zip(ours, theirs, strict=True):
            assert found["image"].dtype == np.float32
            assert_alike(expected, found, most=MEAN / 255 / min(std))


@pytest.mark.parametrize("on_error", ["replace", "drop"])
def test_a_broken_picture_costs_one_sample(tmp_path: Path, dali: str, on_error: Any) -> None:
    """Pain 35: five of 200 are broken; the pipeline on the GPU goes on, in this epoch and the next."""
    broken = set(make_broken_shard(tmp_path / "a.tar", 195))
    pipeline = over(str(tmp_path / "a.tar"), batch_size=20, on_error=on_error)
    with load(pipeline, backend=Backend("dali", device=dali)) as loader:
        for epoch in range(2):
            shown = [key for batch in loader for key in batch["__key__"]]
            assert not broken & set(shown), f"epoch {epoch}"
            assert len(set(shown)) == 195
        assert loader.stats()["bad_samples"] == 2 * len(broken)


def test_a_broken_picture_is_named(tmp_path: Path, dali: str) -> None:
    """Pain 35: under "raise" the error names the sample; a loader goes on behind it."""
    make_broken_shard(tmp_path / "a.tar", 10)
    pipeline = over(str(tmp_path / "a.tar"), on_error="raise", shuffle=False, lanes=1, batch_size=1)
    with load(pipeline, backend=Backend("dali", device=dali)) as loader:
        batches = iter(loader)
        assert next(batches)["__key__"] == ["s00-0000"]
        with pytest.raises(SampleError, match="broken-cut-at-half"):
            next(batches)
        loader.skip(1)
        assert next(iter(loader))["__key__"] == ["s00-0001"]
