"""A store that answers wrongly costs time, never a sample (pain 41)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker import ops
from stoker.errors import SampleError, StorageError
from stoker.testing import assert_equal_batches, keys_of
from support.faulty_http import (
    Cut,
    EmptyOk,
    Fault,
    FaultyServer,
    Flip,
    NoRanges,
    Shifted,
    Short,
    Stall,
    Status,
    run_faulty_http,
    seeded_faults,
)
from support.loading import batches_of, load
from support.shards import samples, tar_bytes

NUM_SAMPLES = 60
PICTURES = tar_bytes(samples([NUM_SAMPLES])[0])
FAULTS: dict[str, Sequence[Fault]] = {
    "cut at once": [Cut(0)],
    "cut in the body": [Cut(1000), Cut(1)],
    "empty 200": [EmptyOk(), EmptyOk()],
    "flipped byte": [Flip(700)],
    "flipped byte further on": [Flip(3000)],
    "flipped byte of a header": [Flip(20)],
    "short": [Short(100), Short(0)],
    "shifted": [Shifted(512)],
    "whole object": [NoRanges(), NoRanges()],
    "server errors": [Status(500), Status(503, "SlowDown"), Status(429)],
    "stalled after the headers": [Stall()],
    "mixed": seeded_faults(5, 6),
}


def over(server: FaultyServer, folder: Path, **options: Any) -> stoker.Pipeline:
    """Pictures read from the server in many ranges, with an index that was made while all was well."""
    source = stoker.tar(
        f"{server.url}/a.tar",
        chunk_bytes=32768,
        manifest=str(folder / "index.parquet"),
        storage_options={"timeout": "1s"},
    )
    steps = [ops.DecodeImage("jpg", to="image"), ops.RandomResizedCrop("image", 16), ops.Label("cls")]
    return stoker.Pipeline(source, steps, **{"batch_size": 10, "shuffle": True, **options})


@pytest.mark.parametrize("name", FAULTS)
def test_every_sample_arrives_from_a_faulty_store(tmp_path: Path, name: str) -> None:
    """Pain 41: cut, empty, stalled, flipped and short answers are noticed and asked for again; no sample is lost."""
    with run_faulty_http() as server:
        server.put("a.tar", PICTURES)
        expected = batches_of(over(server, tmp_path))
        num_requests = server.num_gets("a.tar")
        with load(over(server, tmp_path)) as loader:
            server.scripts["/a.tar"].extend(FAULTS[name])
            assert_equal_batches(list(loader), expected)
            assert loader.stats()["bad_samples"] == 0
        assert not server.scripts["/a.tar"]
        if name != "whole object":
            assert server.num_gets("a.tar") > num_requests + 1
    assert len(set(keys_of(expected))) == NUM_SAMPLES


def test_what_is_damaged_in_storage_is_a_bad_sample(tmp_path: Path) -> None:
    """Pain 41: a byte that is wrong at every read makes one sample bad, by its checksum; the others arrive."""
    with run_faulty_http() as server:
        server.put("a.tar", PICTURES)
        with load(over(server, tmp_path, on_error="drop")) as loader:
            at = PICTURES.index(b"\xff\xda") + 40  # pixels of the first picture
            server.files["/a.tar"] = PICTURES[:at] + bytes([PICTURES[at] ^ 4]) + PICTURES[at + 1 :]
            found = keys_of(loader)
            assert loader.stats()["bad_samples"] == 1
    assert sorted(found) == [f"s00-{row:04d}" for row in range(1, NUM_SAMPLES)]


def test_an_object_that_is_gone_is_named(tmp_path: Path) -> None:
    """Pain 41: what cannot be read is an error with URL, range and the store's reason, without waiting for ever."""
    with run_faulty_http() as server:
        server.put("a.tar", PICTURES)
        with load(over(server, tmp_path)) as loader:
            del server.files["/a.tar"]
            with pytest.raises(SampleError, match=rf"{server.url}/a\.tar row \d+") as got:
                list(loader)
        assert isinstance(got.value.__cause__, StorageError)


def test_an_index_is_made_through_faults(tmp_path: Path) -> None:
    """Pain 41: the scan that makes the index notices wrong answers too."""
    with run_faulty_http() as server:
        server.put("a.tar", PICTURES, [Cut(100), EmptyOk(), Short(50), Status(503)])
        assert len(keys_of(batches_of(over(server, tmp_path)))) == NUM_SAMPLES


def test_an_s3_store_that_answers_wrongly(tmp_path: Path) -> None:
    """Pain 41: the same holds for S3: its empty, cut and throttled answers are asked for again."""
    with run_faulty_http() as server:
        server.put("bucket/a.tar", PICTURES)
        options = {"endpoint": server.url, "skip_signature": "true", "region": "us-east-1", "timeout": "1s"}
        source = stoker.tar(
            "s3://bucket/a.tar", manifest=str(tmp_path / "index"), storage_options=options, chunk_bytes=32768
        )
        pipeline = stoker.Pipeline(source, [ops.Label("cls")], batch_size=10)
        with load(pipeline) as loader:
            server.scripts["/bucket/a.tar"].extend([EmptyOk(), Cut(10), Status(503, "SlowDown"), Short(7), Flip(100)])
            assert sorted(keys_of(loader)) == [f"s00-{row:04d}" for row in range(NUM_SAMPLES)]
