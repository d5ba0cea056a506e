"""Videos from a service are those of local mode."""

from __future__ import annotations

from pathlib import Path

import stoker
from stoker import ops
from stoker.testing import assert_equal_batches
from support import videos
from support.cluster import Cluster
from support.loading import load, tar_of
from support.streams import batches_on


def test_videos_from_a_service_are_those_of_local_mode(tmp_path: Path) -> None:
    """Two epochs: the second from indices that the worker has kept; one video is cut short."""
    files = [videos.encode(20 + row, b_frames=3) for row in range(10)]
    files[4] = files[4][: len(files[4]) * 6 // 10]
    shard = tar_of(tmp_path / "a.tar", {f"{row:04d}": {"mp4": file} for row, file in enumerate(files)})
    steps = [ops.DecodeVideo("mp4", to="clip", num_frames=3, stride=3)]
    pipeline = stoker.Pipeline(stoker.tar(shard), steps, batch_size=2, shuffle=True, on_error="replace")
    with load(pipeline) as loader:
        expected = list(batches_on(loader, 10))
    assert sum(int((~batch["__mask__"]).sum()) for batch in expected) == 2
    with Cluster(tmp_path / "cluster", 1) as cluster, load(pipeline, service=cluster.url) as loader:
        assert_equal_batches(list(batches_on(loader, 10)), expected)
