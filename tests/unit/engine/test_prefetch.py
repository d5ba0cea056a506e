"""Chunks are in the cache before the readers come, within the lead, and each is brought once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import stoker
from stoker.engine.feed import ChunkUse, Deal, Feed
from stoker.engine.future import Future
from stoker.engine.opening import open_data
from stoker.engine.prefetch import Prefetcher
from stoker.engine.retries import RetryTally
from stoker.formats.dataset import Dataset
from stoker.pipeline import Pipeline
from stoker.ranks import Rank
from stoker.storage.cache import CacheOptions, ChunkCache
from stoker.storage.store import ObjectRange
from stoker.storage.use import Use
from support.faulty_http import FaultyServer, Status, run_faulty_http
from support.shards import tar_bytes

CHUNK = 16 << 10


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "index"))
    with run_faulty_http() as running:
        rows = [(f"{row:03d}", {"bin": bytes([row]) * 4000}) for row in range(120)]
        running.put("train.tar", tar_bytes(rows))
        yield running


class Bench:
    """A prefetcher over a data set, and what a reader would tell it."""

    def __init__(self, server: FaultyServer, ram_bytes: int) -> None:
        self.server = server
        pipeline = Pipeline(
            stoker.tar(f"{server.url}/train.tar", chunk_bytes=CHUNK), [], batch_size=4, shuffle=True, window=1, lanes=1
        )
        self.tally = RetryTally()
        self.cache = ChunkCache(CacheOptions(ram_bytes=ram_bytes))
        self.dataset: Dataset = open_data(pipeline, self.tally, cache=self.cache)
        deal = Deal(pipeline, self.dataset.chunks.num_samples, Rank(0, 1))
        self.future = Future(Feed(deal, self.dataset.chunks), "job")
        self.order = self.future.epoch(0).chunk_at.tolist()
        self.prefetcher = Prefetcher(self.dataset, self.future, self.tally.stats)
        server.requests.clear()

    def read(self, first: int, stop: int) -> None:
        """Reads of the chunks at these places of the order begin."""
        for chunk in self.order[first:stop]:
            use = self.future.use(ChunkUse(0, 0, chunk))
            self.prefetcher.moved(use, int(self.dataset.chunks.size_bytes[chunk]))

    def brought(self) -> list[int]:
        """The places in the order of what was brought, once all that was begun is done."""
        pool = self.prefetcher._pool
        with self.prefetcher._lock:
            self.prefetcher._is_closed = True
        pool.shutdown(wait=True)
        starts = {self.dataset.ranges(chunk)[0].start: place for place, chunk in enumerate(self.order)}
        return sorted(
            starts[int(asked.removeprefix("bytes=").partition("-")[0])]
            for method, _, asked in self.server.requests
            if method == "GET"
        )


def not_to_be_loaded(ranges: Sequence[ObjectRange]) -> Sequence[memoryview]:
    raise AssertionError(f"{ranges} should be in the cache")


def test_what_comes_next_is_brought_each_once(server: FaultyServer) -> None:
    bench = Bench(server, ram_bytes=64 << 20)
    bench.read(0, 16)
    found = bench.brought()  # the rest of the epoch, and what the next one begins with
    assert found == sorted(set(found))
    assert set(range(16, len(bench.order))) <= set(found)
    for chunk in bench.order[16:]:
        (wanted,) = bench.dataset.ranges(chunk)
        (body,) = bench.cache.read([wanted], [Use("job", 0.5, 1.5)], not_to_be_loaded)
        assert body == server.files["/train.tar"][wanted.start : wanted.stop]


def test_a_cache_that_has_no_room_to_spare_is_left_alone(server: FaultyServer) -> None:
    bench = Bench(server, ram_bytes=4 * CHUNK)
    bench.read(0, 16)
    assert bench.brought() == []


def test_what_fails_is_left_to_the_readers(server: FaultyServer) -> None:
    bench = Bench(server, ram_bytes=64 << 20)
    server.scripts["/train.tar"].extend([Status(403)] * 3)
    bench.read(0, 16)
    assert bench.brought()


def test_it_follows_a_loader_that_jumps(server: FaultyServer) -> None:
    bench = Bench(server, ram_bytes=64 << 20)
    bench.read(len(bench.order) - 2, len(bench.order))
    bench.read(0, 16)
    assert max(bench.brought(), default=0) < len(bench.order)
    assert bench.prefetcher._now < 0.9
