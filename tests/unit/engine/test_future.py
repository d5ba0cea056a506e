"""When chunks are read, as foreseen, against what an engine's feed reads and its shelf keeps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stoker
from stoker.engine.feed import ChunkUse, Deal, Feed
from stoker.engine.future import Future, reading
from stoker.engine.shelf import Shelf
from stoker.formats.dataset import ChunkTable
from stoker.pipeline import Pipeline
from stoker.plan.order import sequential, shuffled
from stoker.ranks import Rank
from stoker.storage.use import NEVER

ALONE = Rank(0, 1)


def feed_of(rows: list[int], rank: Rank = ALONE, **settings: object) -> Feed:
    num_rows = np.array(rows, np.int32)
    first = np.concatenate([[0], np.cumsum(num_rows)[:-1]]).astype(np.int64)
    chunks = ChunkTable(num_rows, num_rows.astype(np.int64) * 100, first)
    pipeline = Pipeline(stoker.tar("x.tar"), [], drop_last=True, **settings)  # type: ignore[arg-type]
    return Feed(Deal(pipeline, int(num_rows.sum()), rank), chunks)


def read_by(feed: Feed, epoch: int) -> list[ChunkUse]:
    """The chunks that an engine reads for an epoch, in that order, a chunk twice if the shelf let it go meanwhile."""
    shelf = Shelf(lambda chunk: int(feed.chunks.size_bytes[chunk]))
    found: list[ChunkUse] = []
    for number, work in enumerate(feed.work(feed.deal.start(epoch))):
        if work.epoch != epoch:
            return found
        to_read, _ = shelf.reserve(work, number)
        for use in to_read:
            shelf.arrived(use, [])
        found += to_read
        shelf.release(work)
    return found


layouts = st.tuples(
    st.lists(st.integers(3, 9), min_size=40, max_size=80),
    st.integers(1, 5),
    st.integers(1, 6),
    st.integers(1, 4),
)


@given(layouts)
def test_every_chunk_that_a_rank_reads_is_foreseen(layout: tuple[list[int], int, int, int]) -> None:
    rows, window, lanes, world_size = layout
    for rank in range(world_size):
        feed = feed_of(rows, Rank(rank, world_size), batch_size=4, shuffle=True, window=window, lanes=lanes)
        found = Future(feed, "job").epoch(1)
        read = {use.chunk_index for use in read_by(feed, 1)}
        foreseen = set(found.chunk_at.tolist())
        # Lanes are cut between batches, what is foreseen between samples: chunks of a border's window may differ.
        assert len(read - foreseen) <= window * lanes
        assert all((found.first[chunk] != NEVER) == (chunk in foreseen) for chunk in range(len(rows)))


@pytest.mark.parametrize("lanes", [1, 2, 4])
@pytest.mark.parametrize("window", [1, 4])
def test_the_order_foreseen_is_the_order_read(lanes: int, window: int) -> None:
    feed = feed_of([8] * 320, batch_size=8, shuffle=True, window=window, lanes=lanes)
    reads = read_by(feed, 3)
    found = Future(feed, "job").epoch(3)
    times = np.array([found.first[use.chunk_index] for use in reads])
    assert len(reads) == len(found.chunk_at) == 320
    # Side by side, lanes enter their windows in turn: within one window of each lane the sequence may differ.
    assert np.all(np.diff(times) > -2 * window * lanes / 320)


def test_a_window_between_two_lanes_is_read_twice() -> None:
    feed = feed_of([8] * 96, batch_size=8, shuffle=True, window=16, lanes=4)  # lanes of 24 chunks, windows of 16
    reads = read_by(feed, 0)
    found = Future(feed, "job").epoch(0)
    twice = {use.chunk_index for use in reads if reads.count(use) == 2}
    assert len(twice) == 32
    assert {chunk for chunk in range(96) if found.again[chunk] != NEVER} == twice
    future = Future(feed, "job")
    use = next(use for use in reads if use.chunk_index in twice)
    first, second = future.use(use), future.use(use)
    assert (first.now, first.next) == (found.first[use.chunk_index], found.again[use.chunk_index])
    assert second.now == first.next
    assert 1.0 <= second.next < 2.0


def test_the_next_use_is_in_the_next_epoch() -> None:
    feed = feed_of([5] * 64, batch_size=4, shuffle=True, window=8, lanes=2)
    future = Future(feed, "job")
    for use in read_by(feed, 2)[:10]:
        found = future.use(use)
        assert found.job == "job"
        assert found.now == 2 + future.epoch(2).first[use.chunk_index]
        assert found.next == 3 + future.epoch(3).first[use.chunk_index]


@given(
    rows=st.lists(st.integers(1, 9), max_size=60),
    window=st.integers(1, 70),
    lanes=st.integers(1, 12),
    step=st.integers(1, 4),
)
def test_times_are_parts_of_an_epoch(rows: list[int], window: int, lanes: int, step: int) -> None:
    chunk_rows = np.array(rows, np.int32)
    for order in (shuffled(chunk_rows, window_chunks=window, seed=5, epoch=1), sequential(chunk_rows, epoch=1)):
        found = reading(order, lanes, step, 0)
        assert np.all((found.first == NEVER) | ((found.first >= 0) & (found.first < 1)))
        assert np.all((found.again == NEVER) | (found.again > found.first))
        assert np.all(np.diff(found.first[found.chunk_at]) >= 0)
        if step == 1:
            assert len(found.chunk_at) == len(rows)
