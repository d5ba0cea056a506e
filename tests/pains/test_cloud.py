"""Clouds misbehave, on s3:// and gs:// alike: it costs time, never a sample, and is said (pains 41, 51, 52, 62)."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker import ops
from stoker.testing import assert_equal_batches, keys_of
from support.chaos import CloudBucket
from support.loading import batches_of, load
from support.shards import samples, tar_bytes

NUM_SAMPLES = 40
NUM_TINY = 200
SAMPLES = samples([NUM_SAMPLES])[0]
SHARD = tar_bytes(SAMPLES)
FAULTS = {
    "cut at once": "cut=0.15,at=0",
    "cut at byte 1000": "cut=0.15,at=1000",
    "cut anywhere": "cut=0.15",
    "empty 200": "empty=0.15",
    "stalled after the headers": "stall=0.1",
    "flipped byte": "flip=0.2",
    "server errors": "fail=0.15",
    "mixed": "cut=0.05,empty=0.05,flip=0.1,fail=0.05,stall=0.02,latency_ms=3,tail_ms=100,tail=0.05",
    "mixed otherwise": "cut=0.05,empty=0.05,flip=0.1,fail=0.05,rate=200,burst=9,latency_ms=3,seed=1",
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index goes here where it cannot lie beside the data."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(params=["tar", "files"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def put(cloud: CloudBucket, kind: str, num_samples: int = NUM_SAMPLES) -> None:
    made = samples([num_samples])[0]
    files = {f"pictures/{key[-1]}/{key}.jpg": fields["jpg"] for key, fields in made}
    cloud.put_many({"a.tar": tar_bytes(made)} if kind == "tar" else files)


def over(cloud: CloudBucket, kind: str, *more: Any, chunk_bytes: int = 8192, **settings: Any) -> stoker.Pipeline:
    """Pictures in many small reads; the labels are those of the tar, or numbers of the folders."""
    options = {"chunk_bytes": chunk_bytes, "storage_options": cloud.options(timeout="1s")}
    if kind == "tar":
        source: Any = stoker.tar(f"{cloud.url}/a.tar", **options)
    else:
        source = stoker.files(f"{cloud.url}/pictures", **options)
    steps = [ops.DecodeImage("jpg", to="image"), *more, ops.RandomResizedCrop("image", 16), ops.Label("cls")]
    return stoker.Pipeline(source, steps, **{"batch_size": 10, "shuffle": True, **settings})


@pytest.mark.parametrize("fault", FAULTS)
def test_every_sample_arrives_from_a_misbehaving_cloud(cloud: CloudBucket, kind: str, fault: str) -> None:
    """Pain 41: cut, empty, stalled, flipped and failed answers are noticed and asked for again; no sample is lost."""
    put(cloud, kind)
    expected = batches_of(over(cloud, kind))
    with load(over(cloud, kind)) as loader:
        cloud.behave(FAULTS[fault])
        assert_equal_batches(list(loader), expected)
        stats = loader.stats()
    assert stats["bad_samples"] == 0
    assert cloud.counts().faults
    assert Counter(keys_of(expected)) == Counter(dict.fromkeys(keys_of(expected), 1))
    assert len(keys_of(expected)) == NUM_SAMPLES


def test_an_index_is_made_through_a_misbehaving_cloud(cloud: CloudBucket, kind: str) -> None:
    """Pain 41: the listing and the scan that make the index notice wrong answers too."""
    put(cloud, kind)
    cloud.behave("page=20,cut=0.1,empty=0.1,fail=0.1,stall=0.03,seed=4")
    assert len(set(keys_of(batches_of(over(cloud, kind))))) == NUM_SAMPLES
    assert cloud.counts().faults


def test_listings_come_in_pages(cloud: CloudBucket) -> None:
    """Pain 41: a listing of many pages is whole."""
    put(cloud, "files")
    cloud.behave("page=7")
    assert len(set(keys_of(batches_of(over(cloud, "files"))))) == NUM_SAMPLES
    bucket = "/" + cloud.url.partition("://")[2]
    listings = [line for line in cloud.counts().lines(method="GET", prefix=bucket) if line.path.rstrip("/") == bucket]
    assert sum(line.requests for line in listings) >= NUM_SAMPLES // 7


def test_too_many_requests_are_asked_again(cloud: CloudBucket, kind: str) -> None:
    """Pain 51, without a service: what the store throttles is asked for again, and counted."""
    put(cloud, kind)
    status = 503 if cloud.url.startswith("s3") else 429
    with load(over(cloud, kind)) as loader:
        cloud.behave(f"rate=30,burst=3,throttle={status}")
        assert len(set(keys_of(loader))) == NUM_SAMPLES
        stats = loader.stats()
    assert 0 < stats["throttled"] <= cloud.counts().faults["throttled"]
    assert cloud.counts().requests(status=status) == cloud.counts().faults["throttled"]


def test_many_requests_are_in_flight_where_latency_is_high(cloud: CloudBucket) -> None:
    """Pain 52: requests overlap, the more the longer they take; the server counts them."""
    many = tar_bytes(samples([NUM_TINY], images=False)[0])
    cloud.put("many.tar", many)
    source = stoker.tar(f"{cloud.url}/many.tar", chunk_bytes=1, storage_options=cloud.options())
    with load(stoker.Pipeline(source, [ops.Label("cls")], batch_size=20, shuffle=True)) as loader:
        cloud.behave("latency_ms=300,sigma=0")
        assert len(keys_of(loader)) == NUM_TINY
    assert cloud.counts().most_in_flight >= 24


def test_files_are_asked_for_at_the_same_time(cloud: CloudBucket) -> None:
    """Pain 52: neighbouring small files are not waited for one after the other."""
    put(cloud, "files")
    with load(over(cloud, "files")) as loader:
        cloud.behave("latency_ms=300,sigma=0")
        assert len(keys_of(loader)) == NUM_SAMPLES
    assert cloud.counts().most_in_flight >= 12


@pytest.mark.parametrize("place", ["disk", "s3", "gcs"])
def test_storage_options_can_make_any_store_misbehave(
    request: pytest.FixtureRequest, tmp_path: Path, place: str
) -> None:
    """Pain 41, in the process itself: the same profile, without a server."""
    if place == "disk":
        (tmp_path / "a.tar").write_bytes(SHARD)
        url, options = str(tmp_path / "a.tar"), {}
    else:
        bucket = request.getfixturevalue(f"{place}_bucket")
        url, options = bucket.put("a.tar", SHARD), bucket.storage_options
    chaos = "flaky,seed=3,cut=0.1,flip=0.1,fail=0.1,stall=0.02,stall_s=1,rate=200,burst=20"

    def pipeline(**more: str) -> stoker.Pipeline:
        source = stoker.tar(url, chunk_bytes=8192, storage_options={**options, **more})
        return stoker.Pipeline(source, [ops.Label("cls")], batch_size=10, shuffle=True)

    expected = batches_of(pipeline())
    with load(pipeline(chaos=chaos)) as loader:
        assert_equal_batches(list(loader), expected)
        assert loader.stats()["retries"] > 0


def slowly(fields: Any) -> Any:
    """The delay that is to be found."""
    time.sleep(0.02)
    return fields


def test_slow_storage_is_called_so(cloud: CloudBucket, kind: str) -> None:
    """Pain 62: with latency in the store, the verdict is storage."""
    put(cloud, kind, 2 * NUM_SAMPLES)
    pipeline = over(cloud, kind, chunk_bytes=1, batch_size=4, lanes=1, window=1)  # a read for each picture, in order
    with load(pipeline) as loader:
        cloud.behave("latency_ms=300,sigma=0")
        assert len(keys_of(loader)) == 2 * NUM_SAMPLES
        assert loader.stats()["limited_by"] == "storage", loader.stats()


def test_slow_decoding_is_called_so(cloud: CloudBucket, kind: str) -> None:
    """Pain 62: with the delay in an op, over the same cloud, the verdict is decode."""
    put(cloud, kind)
    with load(over(cloud, kind, ops.Map(slowly), batch_size=4), num_threads=1) as loader:
        assert len(keys_of(loader)) == NUM_SAMPLES
        assert loader.stats()["limited_by"] == "decode", loader.stats()
