"""Workers keep decoded samples for one another, and their stream stays local mode's."""

from __future__ import annotations

from pathlib import Path

import stoker
from stoker import ops
from stoker.engine.prepared_place import SUFFIX
from stoker.testing import assert_equal_batches
from support.cluster import Cluster
from support.loading import load
from support.shards import make_shards

ROWS = (7, 11, 2, 30, 1, 9)


def pipeline(shards: str, *cache: ops.Cache) -> stoker.Pipeline:
    steps = [ops.DecodeImage("jpg", to="image"), ops.Resize("image", 40), *cache, ops.RandomResizedCrop("image", 24)]
    source = stoker.tar(shards, chunk_bytes=8192)
    return stoker.Pipeline(source, [*steps, ops.Label("cls")], batch_size=4, shuffle=True, window=3)


def test_workers_fill_and_use_one_place(tmp_path: Path) -> None:
    make_shards(tmp_path / "data", ROWS)
    shards, place = f"{tmp_path}/data/shard-*.tar", tmp_path / "place"
    with load(pipeline(shards)) as loader:
        expected = [batch for _ in range(3) for batch in loader]
    cached = pipeline(shards, ops.Cache(str(place)))
    with Cluster(tmp_path / "cluster", 2) as cluster:
        with load(cached, service=cluster.url) as loader:
            assert_equal_batches([batch for _ in range(3) for batch in loader], expected)
        written = {path.name for path in place.rglob(f"*{SUFFIX}")}
        assert written
        with load(cached, service=cluster.url, job="another") as loader:
            assert_equal_batches([batch for _ in range(3) for batch in loader], expected)
    assert written <= {path.name for path in place.rglob(f"*{SUFFIX}")}
