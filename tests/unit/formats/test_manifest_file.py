from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stoker.formats import manifest_file
from stoker.formats.manifest import ROW_SCHEMA, Shard, rows_of, with_urls
from stoker.formats.parquet import ManifestError
from stoker.formats.stores import Stores

STORES = Stores(None)


def batch(num_rows: int, first_offset: int = 0, size: int = 1024) -> pa.RecordBatch:
    number = np.arange(num_rows)
    ends = pa.array(np.arange(num_rows + 1, dtype=np.int32) * 2)
    columns = [
        pa.array(first_offset + number * size),
        pa.array(np.full(num_rows, size)),
        pa.array([None if at % 3 == 2 else at + 1 for at in range(num_rows)], pa.uint32()),
        pa.array([f"k{at}" for at in range(num_rows)]),
        pa.ListArray.from_arrays(ends, pa.array(["jpg", "cls"] * num_rows)),
        pa.array(number % 5),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)


def shard(url: str, num_rows: int, **changes: object) -> Shard:
    values: dict[str, object] = {"size_bytes": 99, "version": "v1", "digest": url[-5:], "encoding": "tar"}
    return Shard(url=url, num_rows=num_rows, content_bytes=99, **{**values, **changes})  # type: ignore[arg-type]


def write(folder: Path, shards: list[Shard], batches: list[pa.RecordBatch], name: str = "m.parquet") -> str:
    url = f"file://{folder}/{name}"
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(manifest_file.encode(url, "first-dot", shards, batches))
    return url


def test_round_trip(tmp_path: Path) -> None:
    shards = [
        shard(f"file://{tmp_path}/a.tar", 4, notices=("is cut at byte 7",)),
        shard("s3://other/b.tar", 0, encoding="gzip"),
        shard(f"file://{tmp_path}/sub/c.tar", 2),
    ]
    batches = [batch(4), batch(0), batch(2, 512)]
    url = write(tmp_path, shards, batches)
    found = manifest_file.load(STORES, url)
    assert (found.url, found.keys, list(found.shards)) == (url, "first-dot", shards)
    assert found.rows.offset.tolist() == [0, 1024, 2048, 3072, 512, 1536]
    assert found.rows.crc32c.tolist() == [1, 2, 0, 4, 1, 2]
    assert found.rows.size.dtype == np.uint32
    assert found.first_rows.tolist() == [0, 4, 4, 6]
    scanned = rows_of(batches)
    for name in ("offset", "size", "crc32c"):
        np.testing.assert_array_equal(getattr(found.rows, name), getattr(scanned, name))
    assert found.notices[1] == f"file://{tmp_path}/a.tar: is cut at byte 7"
    assert "gzip shards are read" in found.notices[0]


def test_columns_for_other_tools(tmp_path: Path) -> None:
    write(tmp_path, [shard(f"file://{tmp_path}/a.tar", 2), shard(f"file://{tmp_path}/b.tar", 1)], [batch(2), batch(1)])
    found = pq.read_table(tmp_path / "m.parquet").to_pydict()
    assert found["shard"] == [0, 0, 1]
    assert found["key"] == ["k0", "k1", "k0"]
    assert found["fields"] == [["jpg", "cls"]] * 3
    assert found["label"] == [0, 1, 0]
    described = json.loads(pq.read_metadata(tmp_path / "m.parquet").metadata[b"stoker.manifest"])
    assert [entry["url"] for entry in described["shards"]] == ["a.tar", "b.tar"]


def test_shards_below_the_manifest_move_with_it(tmp_path: Path) -> None:
    write(tmp_path / "old", [shard(f"file://{tmp_path}/old/x/a.tar", 1)], [batch(1)])
    (tmp_path / "old").rename(tmp_path / "new")
    found = manifest_file.load(STORES, f"file://{tmp_path}/new/m.parquet")
    assert found.shards[0].url == f"file://{tmp_path}/new/x/a.tar"


def test_a_signed_web_address_is_kept_without_its_signature(tmp_path: Path) -> None:
    url = write(tmp_path, [shard("https://h/a.tar?signature=hush", 1, digest="d")], [batch(1)])
    assert b"hush" not in (tmp_path / "m.parquet").read_bytes()
    found = with_urls(manifest_file.load(STORES, url), ["https://h/a.tar?signature=new"])
    assert found.shards[0].url == "https://h/a.tar?signature=new"


def test_rows_of_4_gib_and_more(tmp_path: Path) -> None:
    batches = [batch(2), batch(2, size=5 << 30)]
    url = write(tmp_path, [shard("s3://b/a.tar", 2), shard("s3://b/b.tar", 2)], batches)
    assert manifest_file.load(STORES, url).rows.size.tolist() == [1024, 1024, 5 << 30, 5 << 30]
    assert rows_of(batches).size.tolist() == [1024, 1024, 5 << 30, 5 << 30]


def test_content_digest_is_that_of_the_shards_in_order(tmp_path: Path) -> None:
    def digest(*names: str, keys: str = "first-dot") -> str:
        shards = [shard(name, 1) for name in names]
        made = manifest_file.load(STORES, write(tmp_path, shards, [batch(1)] * len(shards)))
        return made.content_digest

    base = digest("s3://b/aaaaa", "s3://b/bbbbb")
    assert digest("s3://elsewhere/aaaaa", "s3://b/bbbbb") == base
    assert digest("s3://b/bbbbb", "s3://b/aaaaa") != base
    assert digest("s3://b/aaaaa") != base


@pytest.mark.parametrize("damage", ["text", "cut", "other Parquet", "other version", "middle"])
def test_what_is_no_manifest(tmp_path: Path, damage: str) -> None:
    url = write(tmp_path, [shard("s3://b/a.tar", 5000)], [batch(5000)])
    path = tmp_path / "m.parquet"
    content = path.read_bytes()
    if damage == "text":
        path.write_bytes(b"hello, this is a text")
    elif damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "other Parquet":
        pq.write_table(pa.table({"a": [1]}), path)
    elif damage == "other version":
        path.write_bytes(content.replace(b'{"version": 1,', b'{"version": 9,'))
    else:
        path.write_bytes(content[:4] + b"\xff" * 20_000 + content[20_004:])
    with pytest.raises(ManifestError):
        manifest_file.load(STORES, url)


def test_stored_rows_across_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_file, "_ROWS_PER_GROUP", 10)
    sizes = [7, 0, 25, 3, 1]
    batches = [batch(num_rows, 512 * at) for at, num_rows in enumerate(sizes)]
    url = write(tmp_path, [shard(f"s3://b/{at}.tar", num_rows) for at, num_rows in enumerate(sizes)], batches)
    assert pq.read_metadata(tmp_path / "m.parquet").num_row_groups > 2
    stored = manifest_file.StoredRows(STORES, url)
    for at in [0, 1, 2, 3, 4, 2, 0]:
        assert stored.shard_rows(at).equals(batches[at])


def test_field_counts(tmp_path: Path) -> None:
    url = write(tmp_path, [shard("s3://b/a.tar", 3)], [batch(3)])
    assert manifest_file.field_counts(STORES, manifest_file.load(STORES, url)) == {"cls": 3, "jpg": 3}


NUM_LARGE = 10_000_000
OPEN_LARGE = """
import sys, time
from stoker.formats import manifest_file
from stoker.formats.chunks import cut
from stoker.formats.stores import Stores

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

stores, url = Stores(None), sys.argv[1]
manifest_file.load(stores, sys.argv[2])  # a small one: what is imported and allocated once is no growth
before, start = peak(), time.process_time()
found = manifest_file.load(stores, url)
seconds, grown = time.process_time() - start, peak() - before
chunks = cut(found.rows.offset, found.rows.size, found.first_rows, 1 << 20)
print(found.num_rows, seconds, grown * 1024, (peak() - before) * 1024, len(chunks.shard))
"""


def large_batches(num_shards: int) -> Iterator[pa.RecordBatch]:
    generator = np.random.default_rng(0)
    per_shard = NUM_LARGE // num_shards
    one = batch(1)
    keys = pa.array(["k"] * per_shard)  # neither keys nor fields are read: short, to be written fast
    fields = pa.ListArray.from_arrays(pa.array(np.zeros(per_shard + 1, np.int32)), pa.array([], pa.string()))
    for _ in range(num_shards):
        size = generator.integers(20, 400, per_shard) * 512
        offset = np.cumsum(size) - size
        crc = pa.array(generator.integers(1, 1 << 32, per_shard, dtype=np.uint32))
        label = pa.array(np.zeros(per_shard, np.int64))
        columns = [pa.array(offset), pa.array(size), crc, keys, fields, label]
        yield pa.RecordBatch.from_arrays(columns, schema=one.schema)


def test_ten_million_rows_open_within_a_second_and_300_mb(tmp_path: Path) -> None:
    """CPU time, so that a busy machine does not fail it; reading is one thread with pyarrow's beside it."""
    num_shards = 1000
    shards = [shard(f"file://{tmp_path}/shard-{at:05d}.tar", NUM_LARGE // num_shards) for at in range(num_shards)]
    large = f"file://{tmp_path}/large.parquet"
    (tmp_path / "large.parquet").write_bytes(
        manifest_file.encode(large, "first-dot", shards, large_batches(num_shards))
    )
    small = write(tmp_path, [shard("s3://b/a.tar", 3)], [batch(3)])
    command = [sys.executable, "-c", OPEN_LARGE, large, small]
    environment = {"PYTHONPATH": ":".join(sys.path)}
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    num_rows, seconds, grown, grown_with_chunks, num_chunks = answer.stdout.split()
    assert int(num_rows) == NUM_LARGE
    assert int(num_chunks) > NUM_LARGE // 20
    assert float(seconds) < 1.0
    assert int(grown) < 300e6
    assert int(grown_with_chunks) < 400e6
