"""A giant picture among small ones does not fill the GPU (pain 40)."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from PIL import Image

import stoker
from stoker import Backend, ops
from support import pictures
from support.loading import load, tar_of

pytestmark = pytest.mark.gpu

GIANT = (30_000, 20_000)
LIMIT_BYTES = 1 << 30
NUM_SMALL = 31


def flat_jpeg(width: int, height: int) -> bytes:
    """A grey JPEG of multiples of 16 pixels, made from its codes: a picture of this size would take gigabytes.

    In a flat picture every MCU of 4:2:0 has the same 32 bits, those of "no change": 6 for a block of Y, 4 for Cb or Cr.
    """
    small = pictures.encode(Image.new("RGB", (16, 16), (128, 128, 128)), "JPEG", quality=90, subsampling=2)
    frame, scan = small.index(b"\xff\xc0") + 5, small.index(b"\xff\xda") + 14
    mcu = small[scan:-2]
    assert mcu == b"\x28\xa2\x8a\x00", mcu
    header = small[:frame] + struct.pack(">HH", height, width) + small[frame + 4 : scan]
    return header + mcu * (width // 16 * (height // 16)) + small[-2:]


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One giant picture among small ones."""
    content = {f"{row:04d}": {"jpg": pictures.jpeg(row)} for row in range(NUM_SMALL)}
    content["giant"] = {"jpg": flat_jpeg(*GIANT)}
    return tar_of(tmp_path_factory.mktemp("giant") / "a.tar", content)


def used_bytes(device: str) -> int:
    """What all processes hold of the GPU's memory."""
    import torch

    torch.cuda.synchronize(device)
    free_bytes, all_bytes = torch.cuda.mem_get_info(device)
    return all_bytes - free_bytes


def over(shard: str) -> stoker.Pipeline:
    """A window of some 500 pixels of the giant, resized."""
    chain = [
        ops.DecodeImage("jpg", to="image", strict=False, max_pixels=GIANT[0] * GIANT[1]),
        ops.RandomResizedCrop("image", 32, scale=(0.0003, 0.0005)),
    ]
    return stoker.Pipeline(stoker.tar(shard), chain, batch_size=8, shuffle=True, on_error="raise")


@pytest.mark.parametrize("max_device_pixels", [50_000_000, 1_000_000_000], ids=["to the CPU", "on the GPU"])
@pytest.mark.timeout(300)
def test_a_giant_picture_among_small_ones(shard: str, dali: str, max_device_pixels: int) -> None:
    """By default it is decoded on the CPU; where it is let onto the GPU, DALI's pools are trimmed after it."""
    backend = Backend(
        "dali", device=dali, placement="mixed", max_device_pixels=max_device_pixels, device_bytes=LIMIT_BYTES
    )
    small = over(shard)
    with load(small, backend=backend) as loader:
        next(iter(loader))  # the context, and DALI's own memory
        before_bytes = used_bytes(dali)
        batches = list(loader)
        after_bytes = used_bytes(dali)
    keys = [key for batch in batches for key in batch["__key__"]]
    assert sorted(set(keys)) == sorted([*(f"{row:04d}" for row in range(NUM_SMALL)), "giant"])
    (giant,) = (batch["image"][row] for batch in batches for row, key in enumerate(batch["__key__"]) if key == "giant")
    assert np.abs(giant.astype(int) - 128).max() <= 1
    assert after_bytes - before_bytes < LIMIT_BYTES
