"""Copies from pinned memory, beside the trainer's work."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import ops
from stoker.batch import to_torch
from stoker.batch.pinned import pool_for
from stoker.device.copier import Copier
from stoker.device.program import DeviceProgram, steps_of
from stoker.engine.local import LocalSupply
from stoker.plan import resume
from stoker.ranks import Rank
from stoker.supply import SupplyOptions
from support import pictures
from support.loading import load, tar_of
from support.samples import batch

pytestmark = pytest.mark.gpu

NUM_SAMPLES = 64
NORMALIZE = ops.Normalize("image", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
DEVICE_OPS = (NORMALIZE, ops.ToLayout("image", "NCHW"), ops.Cast("image", "float16"))


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> str:
    content = {f"{row:04d}": {"jpg": pictures.jpeg(row), "cls": str(row).encode()} for row in range(NUM_SAMPLES)}
    return tar_of(tmp_path_factory.mktemp("shards") / "a.tar", content)


def over(shard: str, *more: Any) -> stoker.Pipeline:
    chain = [ops.DecodeImage("jpg", to="image"), ops.RandomResizedCrop("image", 64), ops.Label("cls"), *more]
    return stoker.Pipeline(stoker.tar(shard), chain, batch_size=16, shuffle=True)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_are_those_of_the_host(shard: str, gpu: str, num_workers: int) -> None:
    import torch

    options: Any = {"output": "torch", "backend": "cpu"}
    with (
        load(over(shard, *DEVICE_OPS), **options) as host,
        load(over(shard), device=gpu, device_ops=DEVICE_OPS, num_workers=num_workers, **options) as loader,
    ):
        for _ in range(2):
            for expected, found in zip(host, loader, strict=True):
                assert found["image"].device == torch.device(gpu)
                assert found["cls"].device == torch.device(gpu)
                assert found["image"].is_contiguous()
                assert torch.equal(found["image"].cpu(), expected["image"])
                assert torch.equal(found["cls"].cpu(), expected["cls"])
                assert loader.state_dict() == host.state_dict()
        stats = loader.stats()
    assert stats["device_copies"] == 2 * stats["batches"]  # the pictures, and all that is small


def test_batches_of_this_process_lie_in_pinned_memory(shard: str) -> None:
    pipeline = over(shard)
    options = SupplyOptions(64 << 20, 60.0, True, True, "default")
    supply = LocalSupply(pipeline, Rank(0, 1), options, num_threads=2, read_bytes=None)
    try:
        made = supply.next(resume.start(0, NUM_SAMPLES, batch_size=16, num_lanes=pipeline.lanes))
    finally:
        supply.close()
    assert to_torch(made.batch)["image"].is_pinned()
    assert to_torch(made.batch)["cls"].is_pinned()


def test_pinned_memory_is_used_again_only_when_the_copy_is_done(gpu: str) -> None:
    import torch

    copier = Copier(gpu, DeviceProgram([]))
    for round_index in range(50):
        made = batch([{"image": np.full((512, 512, 3), round_index, np.uint8)}] * 4)
        fields = copier.copy(made, {}).hand_over()
        del made
        assert bool((fields["image"] == round_index).all())
    copier.close()
    torch.cuda.synchronize()


def test_the_copy_runs_beside_the_trainers_kernels(gpu: str) -> None:
    torch: Any = importlib.import_module("torch")
    pool = pool_for(pin_memory=True)
    assert torch.from_numpy(pool.take(1 << 20)).is_pinned()
    copier = Copier(gpu, DeviceProgram(steps_of(DEVICE_OPS)))
    made = batch([{"image": np.full((256, 256, 3), 7, np.uint8)}] * 16)
    copier.copy(made, {}).event.synchronize()  # warm: memory, streams, constants
    work = torch.rand(8192, 8192, device=gpu)
    torch.mm(work, work)
    torch.cuda.synchronize()
    for _ in range(20):
        torch.mm(work, work)
    done = torch.cuda.Event()
    done.record()
    on_device = copier.copy(made, {})
    on_device.event.synchronize()
    assert not done.query()  # the trainer's kernels are still running
    fields = on_device.hand_over()
    assert fields["image"].shape == (16, 3, 256, 256)
    copier.close()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_ops_give_the_numbers_of_the_cpu(gpu: str, dtype: Any) -> None:
    import torch

    levels = torch.arange(256, dtype=torch.uint8).repeat(3).reshape(1, 16, 16, 3)
    program = DeviceProgram(steps_of([NORMALIZE, ops.ToLayout("image", "NCHW"), ops.Cast("image", dtype)]))
    expected, _ = program.run({"image": levels})
    found, _ = program.run({"image": levels.to(gpu)})
    assert torch.equal(found["image"].cpu(), expected["image"])
