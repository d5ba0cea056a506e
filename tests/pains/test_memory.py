"""Memory and descriptors do not grow (pains 22, 25)."""

from __future__ import annotations

import json
import sys
import tarfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import ops
from stoker.formats.open import open_dataset
from support import programs
from support.loading import load, tar_of
from support.shards import make_shards

NUM_ROWS = 8_000
NUM_MEMBERS = 100_000


def large_tar(path: Path, num_members: int) -> str:
    """Write a tar of many members ``<number>.cls`` without contents, faster than tarfile can."""
    template = tarfile.TarInfo("0000000.cls").tobuf(tarfile.USTAR_FORMAT)
    headers = np.tile(np.frombuffer(template, np.uint8), (num_members, 1))
    digits = np.char.zfill(np.arange(num_members).astype("S7"), 7).view(np.uint8).reshape(num_members, 7)
    headers[:, :7] = digits
    headers[:, 148:156] = ord(" ")
    sums = headers.sum(axis=1)
    octal = np.stack([(sums >> (3 * place)) & 7 for place in range(5, -1, -1)], axis=1) + ord("0")
    headers[:, 148:154] = octal
    headers[:, 154:156] = (0, ord(" "))
    path.write_bytes(headers.tobytes() + bytes(1024))
    return str(path)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_from_epoch_to_epoch(tmp_path: Path) -> None:
    """Pain 22: with many rows and several threads, memory after the sixth epoch is that after the third."""
    num_shards = 8
    make_shards(tmp_path, (NUM_ROWS // num_shards,) * num_shards, images=False)
    ended = programs.run("epochs", f"{tmp_path}/shard-*.tar", "6")
    assert ended.returncode == 0, ended.stderr
    num_rows, resident_kb, blocks = zip(*map(json.loads, ended.stdout.splitlines()), strict=True)
    assert num_rows == (NUM_ROWS,) * 6
    assert resident_kb[-1] < 1.05 * max(resident_kb[:3])
    assert blocks[-1] < 1.05 * max(blocks[:3])


def test_the_index_is_flat_arrays(tmp_path: Path) -> None:
    """Pain 22: an opened data set holds its rows in flat arrays: few bytes a row, and no Python object for any."""
    source = stoker.tar(large_tar(tmp_path / "a.tar", NUM_MEMBERS))
    open_dataset(source)  # makes the manifest
    tracemalloc.start()
    try:
        before = sys.getallocatedblocks()
        dataset = open_dataset(source)
        blocks = sys.getallocatedblocks() - before
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert dataset.chunks.num_samples == NUM_MEMBERS
    assert blocks < NUM_MEMBERS / 20
    assert held < 64 * NUM_MEMBERS


def test_reading_does_not_run_away_from_decoding(tmp_path: Path) -> None:
    """Pain 22: however small the batches and slow the user's function, what is read ahead stays within its bound."""
    batch_size, sample_bytes, read_bytes = 4, 32 << 10, 1 << 20
    samples = ((f"{number:03d}", {"txt": bytes(sample_bytes)}) for number in range(256))
    source = stoker.tar(tar_of(tmp_path / "a.tar", samples), chunk_bytes=sample_bytes)
    ahead: list[int] = []

    def slow(sample: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.002)
        stats = loader.stats()
        ahead.append(stats["bytes_read"] - sample_bytes * stats["samples"])
        return {"size": len(sample["txt"])}

    pipeline = stoker.Pipeline(source, [ops.Map(slow)], batch_size=batch_size)
    with load(pipeline, num_threads=1, read_bytes=read_bytes) as loader:
        assert sum(len(batch["size"]) for batch in loader) == 256
    assert max(ahead) < read_bytes + 6 * batch_size * (sample_bytes + 1024)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_kept_batches_hold_no_descriptors(tmp_path: Path) -> None:
    """Pain 25: with 128 descriptors allowed and more shards than that, 2,000 batches can be kept."""
    make_shards(tmp_path, (2,) * 150, num_classes=7, images=False)
    ended = programs.run("keep_batches", f"{tmp_path}/shard-*.tar", "2000")
    assert ended.returncode == 0, ended.stderr
    num_kept, total, counts = json.loads(ended.stdout)
    assert num_kept >= 2000
    assert total == num_kept // 75 * sum(number % 7 for number in range(300))
    assert max(counts[1:]) <= counts[0] + 8
