"""Batches of any size, and memory that is bounded whatever their size and whoever is slow (pains 23, 57, 60)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stoker
from stoker import ops
from support import programs
from support.cluster import BEAT_S, DEADLINE_S, Cluster, until
from support.large import MIB, arrays, keys_of_whole, make_large
from support.loading import load, numbered


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    options = ("--num-threads", "2", "--memory-bytes", str(64 * MIB), "--read-bytes", str(32 * MIB))
    with Cluster(tmp_path_factory.mktemp("cluster"), 1, worker_options=options) as running:
        yield running


def test_ten_thousand_batches_of_ten_bytes(cluster: Cluster, tmp_path: Path) -> None:
    """Pain 57: very small batches all come, in order."""
    path = numbered(tmp_path / "a.tar", 10_000)
    pipeline = stoker.Pipeline(stoker.tar(path), [ops.Label("cls")], batch_size=1)
    with load(pipeline, service=cluster.url) as loader:
        found = [int(batch["cls"][0]) for batch in loader]
    assert found == [batch_index % 8 * 1250 + batch_index // 8 for batch_index in range(10_000)]  # eight lanes


def test_a_slow_consumer_bounds_the_memory_of_all(cluster: Cluster, tmp_path: Path) -> None:
    """Pain 60: while a trainer takes nothing, worker and client hold what they may hold and make no more."""
    path = make_large(tmp_path / "a.tar", 600, 2 * MIB)
    (worker,) = cluster.workers
    idle_bytes = worker.rss_bytes()
    # 64 MiB of batches, 32 MiB of chunks, 256 MiB of memory kept warm, and slack: far from the 1200 MiB of an epoch.
    most_bytes = (64 + 32 + 256 + 64) * MIB
    pipeline = arrays(path, 2, lanes=4)
    with load(pipeline, service=cluster.url, prefetch_bytes=32 * MIB) as loader:
        batches = iter(loader)
        assert keys_of_whole(next(batches)) == [0, 1]
        before = _rows_at_rest(cluster, pipeline)
        assert before < 150, "of 600 rows of 2 MiB, with 64 MiB in the worker and 32 MiB in the client"
        assert worker.rss_bytes() - idle_bytes < most_bytes
        for _ in range(20):
            keys_of_whole(next(batches))
        assert _rows_at_rest(cluster, pipeline) - before < 100
        assert worker.rss_bytes() - idle_bytes < most_bytes


def _rows_at_rest(cluster: Cluster, pipeline: stoker.Pipeline) -> int:
    """Rows that the workers have made of a pipeline, once four beats of each tell the same."""
    seen: list[int] = []

    def rests() -> bool:
        seen.append(cluster.rows_made(pipeline))
        polls = int(4 * BEAT_S / 0.02)
        return len(seen) > polls and len(set(seen[-polls:])) == 1

    until("the workers make no more", rests)
    return seen[-1]


def _can_unshare() -> bool:
    """Whether a mount namespace of one's own can be had here."""
    if shutil.which("unshare") is None or os.getuid() != 0:
        return False
    return subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode == 0


@pytest.mark.skipif(not _can_unshare(), reason="needs root's right to make a mount namespace")
def test_a_small_dev_shm(tmp_path: Path) -> None:
    """Pain 23: with 64 MiB of /dev/shm, as in containers, batches of 100 MiB come, and nobody dies of SIGBUS."""
    path = make_large(tmp_path / "a.tar", 8, 50 * MIB)
    script = 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"'
    program = [sys.executable, "-m", "support.service_programs", "load_large", path, str(tmp_path / "cluster")]
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *program],
        env=programs.environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    shm_bytes, found, left = json.loads(ended.stdout)
    assert shm_bytes == 64 * MIB
    assert found == [[n + 1, n + 1] for n in range(8)]
    assert left == []
