"""One batch of 1.5 GiB (pain 57)."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cluster import Cluster
from support.large import MIB, arrays, keys_of_whole, make_large
from support.loading import load


def available_bytes() -> int:
    """What processes can have, page cache that can go included."""
    found = Path("/proc/meminfo").read_text(encoding="ascii").partition("MemAvailable:")[2]
    return int(found.split()[0]) << 10


@pytest.mark.skipif(available_bytes() < 10 << 30, reason="needs 10 GiB of available memory")
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
