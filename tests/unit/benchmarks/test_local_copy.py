"""A copy of an object store's shards holds the same samples, unless it would be too large."""

from __future__ import annotations

from pathlib import Path

from stoker.formats.open import open_dataset
from stoker.formats.parquet_writer import encode_shard
from stoker.formats.source import Files, Parquet, Tar
from stoker_bench import local_copy
from support import shards
from support.parquet import read_all
from support.servers import Bucket


def test_shards_are_copied_byte_by_byte_in_order(s3_bucket: Bucket, tmp_path: Path) -> None:
    made = shards.make_shards(tmp_path / "made", (3, 2), images=False)
    s3_bucket.put_many({path.name: path.read_bytes() for path in made})
    source = Tar((f"{s3_bucket.url}/shard-*.tar",), storage_options=dict(s3_bucket.storage_options))
    (tmp_path / "copy").mkdir()
    assert local_copy.copy(source, tmp_path / "copy") == Tar((str(tmp_path / "copy" / "*.tar"),))
    copied = sorted((tmp_path / "copy").iterdir())
    assert [path.read_bytes() for path in copied] == [path.read_bytes() for path in made]


def test_parquet_stays_parquet_with_its_columns(s3_bucket: Bucket, tmp_path: Path) -> None:
    s3_bucket.put_many({f"{number}.parquet": encode_shard([(f"k{number}", {"x": 1})]) for number in range(2)})
    source = Parquet((f"{s3_bucket.url}/*.parquet",), ("x",), storage_options=dict(s3_bucket.storage_options))
    copied = local_copy.copy(source, tmp_path)
    assert copied == Parquet((str(tmp_path / "*.parquet"),), ("x",))
    assert [key for key, _ in read_all(open_dataset(copied))] == ["k0", "k1"]


def test_what_is_too_large_or_no_tar_is_not_copied(tmp_path: Path) -> None:
    (path,) = shards.make_shards(tmp_path, (3,), images=False)
    assert local_copy.copy(Tar((str(path),)), tmp_path, max_bytes=100) is None
    assert local_copy.copy(Files(str(tmp_path)), tmp_path) is None
