"""Which worker process makes which batch."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stoker
from stoker.engine.feed import Deal, Feed
from stoker.engine.process_share import Share
from stoker.formats.dataset import ChunkTable
from stoker.plan.resume import Position
from stoker.ranks import Rank

small = st.integers(1, 9)


def feed_of(num_samples: int, rank: Rank, **settings: object) -> Feed:
    """Chunks of up to three rows; where they lie is of no account."""
    rows = np.array([3] * (num_samples // 3) + [1] * (num_samples % 3), np.int32)
    first = np.concatenate([[0], np.cumsum(rows)[:-1]]).astype(np.int64)
    chunks = ChunkTable(rows, np.full(len(rows), 10, np.int64), first)
    arguments = {"batch_size": 2, "shuffle": True, "window": 4, **settings}
    pipeline = stoker.Pipeline(stoker.tar("/nowhere/*.tar"), [], **arguments)  # type: ignore[arg-type]
    return Feed(Deal(pipeline, chunks.num_samples, rank), chunks)


def batches_of(feed: Feed, position: Position, count: int) -> list[tuple[int, int]]:
    return [(work.epoch, work.batch_index) for work in islice(feed.work(position), count)]


@given(
    num_samples=st.integers(1, 90),
    lanes=small,
    world_size=small,
    num_workers=small,
    skipped=st.integers(0, 20),
    data=st.data(),
)
def test_the_shares_of_all_workers_are_the_feed(
    num_samples: int, lanes: int, world_size: int, num_workers: int, skipped: int, data: st.DataObject
) -> None:
    """Over the ends of epochs and from any position, batch by batch and sample by sample."""
    rank = Rank(data.draw(st.integers(0, world_size - 1), label="rank"), world_size)
    feed = feed_of(num_samples, rank, lanes=lanes)
    share = Share(feed.deal, num_workers)
    position = feed.deal.skipped(feed.deal.start(1), skipped)
    expected = list(islice(feed.work(position), 30))
    slots = list(islice(share.slots(position), 30))
    assert [(slot.epoch, slot.batch_index) for slot in slots] == [(w.epoch, w.batch_index) for w in expected]
    shares = [share.work(feed, position, worker) for worker in range(num_workers)]
    for slot, work in zip(slots, expected, strict=True):
        made = next(shares[slot.worker_index])
        assert (made.epoch, made.batch_index, made.uses) == (work.epoch, work.batch_index, work.uses)
        np.testing.assert_array_equal(made.samples, work.samples)


@given(lanes=small, world_size=small, num_workers=small)
def test_the_batches_are_dealt_evenly(lanes: int, world_size: int, num_workers: int) -> None:
    feed = feed_of(6 * world_size * lanes * num_workers, Rank(0, world_size), lanes=lanes)
    num_batches = feed.deal.num_left(feed.deal.start(0))
    slots = islice(Share(feed.deal, num_workers).slots(feed.deal.start(0)), num_batches)
    counts = Counter(slot.worker_index for slot in slots)
    assert max(counts.values()) - min(counts.get(worker, 0) for worker in range(num_workers)) <= lanes


@given(lanes=small, world_size=small, num_workers=small)
def test_a_worker_has_batches_of_as_many_lanes_as_it_says(lanes: int, world_size: int, num_workers: int) -> None:
    feed = feed_of(12 * world_size * lanes * num_workers, Rank(0, world_size), lanes=lanes)
    share = Share(feed.deal, num_workers)
    found: dict[int, set[int]] = {}
    for slot in islice(share.slots(feed.deal.start(0)), feed.deal.num_left(feed.deal.start(0))):
        found.setdefault(slot.worker_index, set()).add(slot.batch_index % lanes)
    assert len(set().union(*found.values())) == share.num_lanes
    assert max(map(len, found.values())) == share.num_lanes_each


@pytest.mark.parametrize("num_workers, world_size", [(1, 1), (2, 1), (4, 1), (8, 1), (2, 2), (4, 2), (3, 1), (5, 1)])
def test_as_many_lanes_as_can_be_dealt_evenly_have_one_worker(num_workers: int, world_size: int) -> None:
    feed = feed_of(2000, Rank(0, world_size), lanes=8)
    workers: dict[int, set[int]] = {}
    for slot in islice(Share(feed.deal, num_workers).slots(feed.deal.start(0)), 200):
        workers.setdefault(slot.batch_index % 8, set()).add(slot.worker_index)
    num_lanes = 8 // world_size
    assert sum(len(found) == 1 for found in workers.values()) >= num_lanes - num_lanes % num_workers


def test_one_lane_goes_round_all_workers() -> None:
    feed = feed_of(100, Rank(0, 1), lanes=1)
    slots = islice(Share(feed.deal, 3).slots(feed.deal.start(0)), 7)
    assert [slot.worker_index for slot in slots] == [0, 1, 2, 0, 1, 2, 0]


def test_what_was_taken_ahead_is_left_out() -> None:
    feed = feed_of(60, Rank(0, 1))
    position = feed.deal.taken(feed.deal.taken(feed.deal.start(0), 2), 5)
    slots = [slot.batch_index for slot in islice(Share(feed.deal, 2).slots(position), 6)]
    assert slots == [0, 1, 3, 4, 6, 7]
    works = list(islice(Share(feed.deal, 1).work(feed, position, 0), 6))
    assert [work.batch_index for work in works] == slots


def test_a_worker_takes_up_its_share_where_another_left_it() -> None:
    feed = feed_of(60, Rank(0, 1))
    share = Share(feed.deal, 2)
    whole = [work.batch_index for work in islice(share.work(feed, feed.deal.start(0), 1), 10)]
    rest = [work.batch_index for work in islice(share.work(feed, feed.deal.start(0), 1, num_skipped=4), 6)]
    assert rest == whole[4:]


def test_a_worker_without_a_batch_in_a_whole_epoch_ends() -> None:
    feed = feed_of(4, Rank(0, 1))
    assert list(Share(feed.deal, 3).work(feed, feed.deal.start(0), 2)) == []
