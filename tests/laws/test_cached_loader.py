"""A loader with a cache gives the same stream, and reads the bucket as often as the cache is small."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker import CacheOptions, ops
from support.faulty_http import FaultyServer, run_faulty_http
from support.shards import tar_bytes

NUM_SHARDS, ROWS, BODY = 4, 48, 4096


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "index"))
    with run_faulty_http() as running:
        for shard in range(NUM_SHARDS):
            rows = [
                (f"{shard}-{row:03d}", {"bin": hashlib.sha512(f"{shard}/{row}".encode()).digest() * (BODY // 64)})
                for row in range(ROWS)
            ]
            running.put(f"train-{shard}.tar", tar_bytes(rows))
        yield running


def pipeline(server: FaultyServer, **settings: Any) -> stoker.Pipeline:
    source = stoker.tar(f"{server.url}/train-{{0..{NUM_SHARDS - 1}}}.tar", chunk_bytes=16 << 10)
    defaults = {"batch_size": 8, "shuffle": True, "window": 4, "lanes": 4, "seed": 3}
    return stoker.Pipeline(source, [ops.Select("bin")], **{**defaults, **settings})


def epochs(loader: stoker.DataLoader, num_epochs: int) -> list[list[tuple[str, ...]]]:
    return [[tuple(batch["__key__"]) for batch in loader] for _ in range(num_epochs)]


def ranges_read(server: FaultyServer) -> Counter[tuple[str, str]]:
    """How often each range of a shard's data was asked for since the last look."""
    found = Counter((path, asked) for method, path, asked in server.requests if method == "GET" and asked)
    server.requests.clear()
    return found


def data_bytes(server: FaultyServer) -> int:
    return sum(len(body) for body in server.files.values())


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_data_set_that_fits_is_read_once(num_workers: int, server: FaultyServer, tmp_path: Path) -> None:
    made = pipeline(server)
    with stoker.DataLoader(made, output="numpy") as plain:
        expected = epochs(plain, 3)
    ranges_read(server)
    with stoker.DataLoader(made, output="numpy", cache=tmp_path / "cache", num_workers=num_workers) as loader:
        assert epochs(loader, 3) == expected
        stats = loader.stats()
    assert set(ranges_read(server).values()) == {1}
    assert stats["cache"]["hits_disk"] + stats["cache"]["hits_ram"] >= 2 * stats["cache"]["misses"]
    with stoker.DataLoader(made, output="numpy", cache=str(tmp_path / "cache")) as again:  # another job, another day
        assert epochs(again, 1) == expected[:1]
    assert not ranges_read(server)


def test_memory_alone(server: FaultyServer) -> None:
    with stoker.DataLoader(pipeline(server), output="numpy", cache=CacheOptions(ram_bytes=64 << 20)) as loader:
        epochs(loader, 3)
        held = loader.stats()["cache"]["held_ram_bytes"]
    assert set(ranges_read(server).values()) == {1}
    assert 0 < held <= data_bytes(server)


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("part", [0.25, 0.5, 0.75])
def test_the_part_that_fits_is_not_read_again(part: float, lanes: int, server: FaultyServer) -> None:
    made = pipeline(server, lanes=lanes)
    with stoker.DataLoader(made, output="numpy", cache=CacheOptions(ram_bytes=1 << 30)) as loader:
        epochs(loader, 1)
        size, num_chunks = (loader.stats()["cache"][name] for name in ("held_ram_bytes", "misses"))
    budget = CacheOptions(ram_bytes=int(part * size))
    with stoker.DataLoader(made, output="numpy", cache=budget, read_bytes=1) as loader:
        epochs(loader, 1)
        first = loader.stats()["cache"]["bytes_missed"]
        epochs(loader, 4)
        missed = (loader.stats()["cache"]["bytes_missed"] - first) / 4
    borders = (lanes - 1) * made.window / num_chunks  # windows between two lanes are read twice in an epoch
    assert missed / size <= 1 - part + borders + 0.02


def test_a_cache_goes_with_this_process(server: FaultyServer, tmp_path: Path) -> None:
    with pytest.raises(stoker.errors.SpecError, match="is for this process"):
        stoker.DataLoader(pipeline(server), cache=tmp_path, service="stoker://127.0.0.1:1")


@pytest.mark.parametrize(
    "cache, text",
    [
        (True, "expected the path of a local folder"),
        ({"folder": "x"}, "expected the path of a local folder"),
        ("s3://bucket/cache", "not a URL"),
        ("file:///tmp/cache", "not a URL"),
        (CacheOptions(), "would keep nothing"),
    ],
    ids=["bool", "dict", "bucket", "file", "nothing"],
)
def test_what_is_no_cache(cache: Any, text: str, server: FaultyServer) -> None:
    with pytest.raises(stoker.errors.SpecError, match=text):
        stoker.DataLoader(pipeline(server), cache=cache)
