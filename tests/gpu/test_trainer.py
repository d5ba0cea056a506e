"""In the trainer: batches on the device without a way through the host; lanes and processes that share a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Backend, ops
from stoker.backends.tolerances import TOLERANCES
from stoker.engine.local import LocalSupply
from support import pictures
from support.loading import load, tar_of

pytestmark = pytest.mark.gpu

NUM_SAMPLES = 96
LIMITS = {each.chain: each.mixed.mean for each in TOLERANCES}
MEAN = LIMITS["imagenet_train"]
NUM_OTHER_BYTES = 256
"""Of a sample, what is not the picture, with what copies are rounded up to."""


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> str:
    content = {
        f"{row:04d}": {"jpg": pictures.jpeg(row, 80 + row, 170 - row), "cls": str(row).encode()}
        for row in range(NUM_SAMPLES)
    }
    return tar_of(tmp_path_factory.mktemp("good") / "a.tar", content)


def over(shard: str, **settings: Any) -> stoker.Pipeline:
    chain = [
        ops.DecodeImage("jpg", to="image", strict=False),
        ops.RandomResizedCrop("image", 48),
        ops.RandomHorizontalFlip("image"),
        ops.Label("cls"),
    ]
    return stoker.Pipeline(stoker.tar(shard), chain, **{"batch_size": 8, "shuffle": True, **settings})


def assert_alike(expected: dict[str, Any], found: dict[str, Any]) -> None:
    assert found["__key__"] == expected["__key__"]
    np.testing.assert_array_equal(np.asarray(found["cls"]), expected["cls"])
    differences = np.abs(np.asarray(found["image"]).astype(int) - expected["image"])
    assert differences.mean(axis=(1, 2, 3)).max() <= MEAN


def test_batches_are_on_the_device_and_never_were_on_the_host(shard: str, dali: str) -> None:
    import torch

    pipeline = over(shard)
    with load(pipeline) as ours, load(pipeline, output="torch", device=dali, backend="dali") as theirs:
        for _ in range(2):
            for expected, found in zip(ours, theirs, strict=True):
                assert found["image"].device == torch.device(dali)
                assert found["image"].dtype == torch.uint8
                assert found["image"].is_contiguous()
                assert found["cls"].device == torch.device(dali)
                assert_alike(expected, {**found, "image": found["image"].cpu(), "cls": found["cls"].cpu()})
        stats = theirs.stats()
    assert 0 < stats["device_bytes"] <= stats["batches"] * 8 * NUM_OTHER_BYTES


def test_a_batch_stays_as_it_was_given(shard: str, dali: str) -> None:
    """The memory of a batch that the trainer holds is used for no other, on whichever stream the trainer works."""
    import torch

    with load(over(shard), output="torch", device=dali, backend="dali") as loader:
        held = [(batch["image"], batch["image"].clone()) for batch in loader]
        torch.cuda.synchronize()
    assert len(held) == NUM_SAMPLES // 8
    assert all(torch.equal(image, copy) for image, copy in held)


@pytest.mark.parametrize("num_lanes", [1, 2, 8])
def test_lanes_share_one_pipeline_on_the_gpu(shard: str, dali: str, num_lanes: int) -> None:
    backend = Backend("dali", device=dali, placement="mixed")
    pipeline = over(shard, lanes=num_lanes)
    with load(pipeline) as ours, load(pipeline, backend=backend, num_threads=4) as theirs:
        for expected, found in zip(ours, theirs, strict=True):
            assert_alike(expected, found)
        supply = theirs._supply
        assert isinstance(supply, LocalSupply)
        runner: Any = supply._program.gatherer
        assert len(runner._shared) == 1


@pytest.mark.timeout(300)
def test_worker_processes_share_the_gpu(shard: str, dali: str) -> None:
    pipeline = over(shard)
    backend = Backend("dali", device=dali)
    with load(pipeline) as ours, load(pipeline, backend=backend, num_workers=2) as theirs:
        for _ in range(2):
            for expected, found in zip(ours, theirs, strict=True):
                assert_alike(expected, found)


def test_a_loader_takes_another_ones_place(shard: str, dali: str) -> None:
    """What a closed loader held of the GPU is there for the next one."""
    import torch

    used = []
    for _ in range(4):
        with load(over(shard), output="torch", device=dali, backend="dali") as loader:
            list(loader)
        torch.cuda.synchronize()
        free_bytes, all_bytes = torch.cuda.mem_get_info(dali)
        used.append(all_bytes - free_bytes)
    assert used[-1] - used[1] < 256 << 20, used
