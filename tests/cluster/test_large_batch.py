"""One batch of 1.5 GiB (pain 57)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.cluster import Cluster
from support.large import MIB, arrays, keys_of_whole, make_large
from support.loading import load


@pytest.mark.skipif(
    os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 10 << 30, reason="needs 10 GiB of free memory"
)
@pytest.mark.parametrize("arena", ["--arena", "--no-arena"])
def test_a_batch_of_one_and_a_half_gigabytes(tmp_path: Path, arena: str) -> None:
    """Pain 57: no limit of gRPC's, ours or Arrow's stands in the way of one large batch."""
    path = make_large(tmp_path / "a.tar", 24, 64 * MIB)
    with (
        Cluster(tmp_path / "cluster", 1, worker_options=("--num-threads", "2", arena)) as cluster,
        load(arrays(path, 24, lanes=1), service=cluster.url, prefetch_bytes=1) as loader,
    ):
        for batch in loader:
            assert batch["array"].shape == (24, 64 * MIB)
            assert keys_of_whole(batch) == list(range(24))
