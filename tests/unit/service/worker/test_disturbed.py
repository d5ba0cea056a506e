"""Streams that come, go and hang, many at once: what arrives is always what it should be, and nothing is left."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pyarrow as pa
import pytest

import stoker
from stoker_service.transport.arena_view import ArenaView
from support.loading import load
from support.streams import pictures

WAIT_S = 60.0
NUM_CLIENTS = 6


def consume(hands: Any, pipeline: stoker.Pipeline, expected: list[pa.RecordBatch], seed: int) -> int:
    """Open streams at random places, take some batches of each, and go, politely or not. Returns how many."""
    chance = random.Random(seed)
    view = ArenaView.open(hands.hello().arena_socket, 1.0) if chance.random() < 0.5 else None
    num_checked = 0
    for _ in range(5):
        lane = chance.randrange(pipeline.lanes)
        start = lane + pipeline.lanes * chance.randrange(10)
        call = hands.open(hands.request(pipeline, lane, batch_start=start, takes_arena=view is not None))
        indices = list(range(start, len(expected), pipeline.lanes))
        num_takes = chance.randrange(len(indices) + 1)
        ahead = chance.randint(1, 8)
        call.credit(ahead)
        for index in indices[:num_takes]:
            begin, batch = call.batch(view)
            assert begin.batch_index == index
            assert batch.equals(expected[index], check_metadata=True), f"batch {index} with seed {seed}"
            call.credit(1, num_copied=int(bool(begin.pieces)))
            num_checked += 1
        call.close()
    if view is not None:
        view.close()
    return num_checked


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("memory_bytes", [1 << 20, 64 << 20])
def test_all_get_what_they_asked_for(start: Any, shards: str, seed: int, memory_bytes: int) -> None:
    pipelines = [pictures(shards, seed=number, lanes=3) for number in range(2)]
    expected = []
    for pipeline in pipelines:
        with load(pipeline, output="arrow") as loader:
            expected.append(list(loader))
    hands = start(memory_bytes=memory_bytes)
    numbers: list[int] = []
    failures: list[BaseException] = []

    def run(number: int) -> None:
        which = number % 2
        try:
            numbers.append(consume(hands, pipelines[which], expected[which], 100 * seed + number))
        except BaseException as error:  # noqa: BLE001  # the test raises it
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(NUM_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive(), f"a client hangs with seed {seed}"
    if failures:
        raise failures[0]
    assert sum(numbers) > 0
    deadline_s = time.monotonic() + WAIT_S
    pause = threading.Event()
    while (stats := hands.server.stats()).num_streams or stats.queued_bytes:
        assert time.monotonic() < deadline_s, f"left with seed {seed}: {stats}"
        pause.wait(0.01)
    for kept in hands.server.producers._kept.values():
        producer = kept.producer
        assert not producer._made
        assert not producer._tickets
        assert producer._maker.held_bytes == 0
