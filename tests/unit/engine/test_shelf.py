"""When a chunk is read, shared, and let go."""

from __future__ import annotations

import numpy as np

from stoker.engine.feed import ChunkUse, Work
from stoker.engine.shelf import Shelf


def work(lane: int, *uses: tuple[int, int], epoch: int = 0) -> Work:
    """A batch of one sample from each (window, chunk)."""
    places = tuple(ChunkUse(epoch, window, chunk) for window, chunk in uses)
    numbers = np.arange(len(places))
    return Work(epoch, 0, lane, numbers, numbers, numbers, places, None)


def shelf() -> Shelf:
    return Shelf(lambda chunk: 100)


def test_a_chunk_is_read_once_while_its_window_is_open() -> None:
    under_test = shelf()
    first, again = work(0, (0, 7)), work(0, (0, 7), (0, 8))
    assert under_test.reserve(first, 0) == ([ChunkUse(0, 0, 7)], 1)
    under_test.arrived(ChunkUse(0, 0, 7), [])
    under_test.release(first)
    assert under_test.reserve(again, 1) == ([ChunkUse(0, 0, 8)], 1)
    assert under_test.held_bytes == 200


def test_tickets_that_wait_for_the_same_chunk_are_both_told() -> None:
    under_test = shelf()
    under_test.reserve(work(0, (0, 7)), 0)
    assert under_test.reserve(work(1, (0, 7)), 1) == ([], 1)
    assert under_test.arrived(ChunkUse(0, 0, 7), []) == [0, 1]


def test_a_window_closes_when_its_lane_has_moved_on_and_no_batch_uses_it() -> None:
    under_test = shelf()
    first, second = work(0, (0, 7)), work(0, (1, 9))
    under_test.reserve(first, 0)
    under_test.arrived(ChunkUse(0, 0, 7), [])
    under_test.reserve(second, 1)
    assert under_test.held_bytes == 200
    under_test.release(first)
    assert under_test.held_bytes == 100


def test_a_window_stays_open_for_the_other_lane_inside() -> None:
    under_test = shelf()
    for lane in (0, 1):
        under_test.reserve(work(lane, (0, 7)), lane)
    under_test.arrived(ChunkUse(0, 0, 7), [])
    for lane in (0, 1):
        under_test.release(work(lane, (0, 7)))
    under_test.reserve(work(0, (1, 8)), 2)
    assert under_test.held_bytes == 200
    under_test.reserve(work(1, (1, 8)), 3)
    assert under_test.held_bytes == 100


def test_the_next_epoch_closes_the_windows_of_the_last() -> None:
    under_test = shelf()
    last = work(0, (5, 7))
    under_test.reserve(last, 0)
    under_test.arrived(ChunkUse(0, 5, 7), [])
    under_test.release(last)
    under_test.reserve(work(0, (0, 7), epoch=1), 1)
    assert under_test.held_bytes == 100
