"""What a loader of Parquet shards promises, on S3 (moto) and GCS (fake-gcs-server), is what it does on a local disk."""

from __future__ import annotations

from pathlib import Path

import pytest

import stoker
from stoker import ops
from stoker.errors import NotFoundError
from stoker.formats.parquet_writer import encode_shard
from stoker.testing import assert_equal_batches, assert_resumable, keys_of
from support.loading import batches_of, load
from support.parquet import make_shards, rows_of
from support.servers import Bucket
from support.shards import samples

ROWS = (7, 11, 2, 9)
SHARDS = [rows_of(shard) for shard in samples(ROWS)]
OBJECTS = {
    f"train/shard-{index:04d}.parquet": encode_shard(rows, group_bytes=8192) for index, rows in enumerate(SHARDS)
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index goes here where it cannot lie beside the data."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(params=["s3_bucket", "gcs_bucket"])
def bucket(request: pytest.FixtureRequest) -> Bucket:
    found: Bucket = request.getfixturevalue(request.param)
    for name, content in OBJECTS.items():
        found.put(name, content)
    return found


def pipeline_over(url: str, options: dict[str, str] | None = None) -> stoker.Pipeline:
    source = stoker.parquet(url, columns=("jpg", "cls"), storage_options=options)
    steps = [ops.DecodeImage("jpg", to="image"), ops.RandomResizedCrop("image", 16), ops.Label("cls")]
    return stoker.Pipeline(source, steps, batch_size=4, shuffle=True, window=3)


def in_bucket(bucket: Bucket, pattern: str = "train/*.parquet") -> stoker.Pipeline:
    return pipeline_over(f"{bucket.url}/{pattern}", dict(bucket.storage_options))


def test_batches_are_those_of_a_local_disk(bucket: Bucket, tmp_path: Path) -> None:
    local = batches_of(pipeline_over(make_shards(tmp_path / "disk", ROWS)))
    for _ in range(2):  # the second time with the index, which must not be taken for a shard
        assert_equal_batches(batches_of(in_bucket(bucket)), local)


def test_a_resume_equals_the_rest(bucket: Bucket) -> None:
    pipeline = in_bucket(bucket)
    assert_resumable(lambda rank, size: load(pipeline, rank, size), steps=[0, 3, 7, 8], epoch=1)


def test_a_changed_shard_is_indexed_again(bucket: Bucket) -> None:
    batches_of(in_bucket(bucket))
    bucket.put("train/shard-0002.parquet", encode_shard([("new", SHARDS[0][0][1])]))
    kept = [key for number, shard in enumerate(SHARDS) for key, _ in shard if number != 2]
    assert sorted(keys_of(batches_of(in_bucket(bucket)))) == sorted([*kept, "new"])


def test_a_missing_shard_is_named(bucket: Bucket) -> None:
    with pytest.raises(NotFoundError, match=r"train/shard-0004\.parquet"):
        load(in_bucket(bucket, "train/shard-{0000..0004}.parquet"))
