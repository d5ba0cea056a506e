"""A service's worker with a GPU: the trainer gets the batches that ``cpu`` makes here, as bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import ops
from stoker.backends.tolerances import TOLERANCES
from support import pictures
from support.cluster import Cluster
from support.loading import load, tar_of

pytestmark = pytest.mark.gpu

NUM_SAMPLES = 96
LIMITS = {each.chain: each.mixed.mean for each in TOLERANCES}
MEAN = LIMITS["imagenet_train"]


def over(folder: Path, **settings: Any) -> stoker.Pipeline:
    content = {
        f"{row:04d}": {"jpg": pictures.jpeg(row, 80 + row, 170 - row), "cls": str(row).encode()}
        for row in range(NUM_SAMPLES)
    }
    content["broken"] = {"jpg": pictures.broken()["cut-at-half.jpg"], "cls": b"0"}
    chain = [
        ops.DecodeImage("jpg", to="image", strict=False),
        ops.RandomResizedCrop("image", 48),
        ops.RandomHorizontalFlip("image"),
        ops.Label("cls"),
    ]
    source = stoker.tar(tar_of(folder / "a.tar", content))
    return stoker.Pipeline(source, chain, **{"batch_size": 8, "shuffle": True, "on_error": "replace", **settings})


def cluster_of(folder: Path, device: str) -> Cluster:
    """One worker with a GPU."""
    options = ("--num-threads", "4", "--backend", "dali", "--device", device)
    return Cluster(folder / "service", num_workers=1, worker_options=options)


def assert_alike(expected: dict[str, Any], found: dict[str, Any]) -> None:
    assert found["__key__"] == expected["__key__"]
    np.testing.assert_array_equal(found["__mask__"], expected["__mask__"])
    np.testing.assert_array_equal(found["cls"], expected["cls"])
    assert found["image"].dtype == np.uint8
    differences = np.abs(found["image"].astype(int) - expected["image"])
    assert differences.mean(axis=(1, 2, 3)).max() <= MEAN


@pytest.mark.parametrize("num_lanes", [1, 4])
@pytest.mark.timeout(300)
def test_batches_are_those_of_local_mode(tmp_path: Path, dali: str, num_lanes: int) -> None:
    pipeline = over(tmp_path, lanes=num_lanes)
    with (
        cluster_of(tmp_path, dali) as cluster,
        load(pipeline) as ours,
        load(pipeline, service=cluster.url) as theirs,
    ):
        for _ in range(2):
            for expected, found in zip(ours, theirs, strict=True):
                assert_alike(expected, found)
        assert theirs.stats()["bad_samples"] == ours.stats()["bad_samples"] == 2


@pytest.mark.timeout(300)
def test_two_trainers_share_the_gpu_of_one_worker(tmp_path: Path, dali: str) -> None:
    pipeline = over(tmp_path)
    with (
        cluster_of(tmp_path, dali) as cluster,
        load(pipeline) as ours,
        load(pipeline, service=cluster.url, job="one") as one,
        load(pipeline, service=cluster.url, job="two") as two,
    ):
        for expected, first, second in zip(ours, one, two, strict=True):
            assert_alike(expected, first)
            assert_alike(expected, second)
