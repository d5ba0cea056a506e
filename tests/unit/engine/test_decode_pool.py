"""Whose rows the decoding threads make next, when several pipelines share them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker import ops
from stoker.backends.registry import compile_ops
from stoker.batch.pool import BufferPool
from stoker.engine.chunk_source import chunks_of
from stoker.engine.decoders import DecodePool
from stoker.engine.feed import Deal, Feed
from stoker.engine.maker import Maker
from stoker.engine.opening import open_data
from stoker.engine.retries import RetryTally
from stoker.engine.stats import Counters
from stoker.engine.ticket import Ticket
from stoker.ranks import Rank
from stoker.storage.concurrency import Concurrency
from support.loading import numbered

DEADLINE_S = 20.0
BATCH = 4


class Job:
    """A maker over 40 samples whose tickets are all ready to be started, and a record of what it made."""

    def __init__(
        self,
        folder: Path,
        name: str,
        decode: DecodePool,
        made: queue.SimpleQueue[str],
        fn: Callable[[dict[str, Any]], dict[str, Any]],
        is_urgent: Callable[[], bool] = lambda: False,
    ) -> None:
        self.name = name
        self.made = made
        self.ready: queue.SimpleQueue[Ticket] = queue.SimpleQueue()
        source = stoker.tar(numbered(folder / f"{name}.tar", 40))
        pipeline = stoker.Pipeline(source, [ops.Map(fn, seed_globals=False)], batch_size=BATCH, lanes=1)
        tally = RetryTally()
        dataset = open_data(pipeline, tally)
        deal = Deal(pipeline, dataset.chunks.num_samples, Rank(0, 1))
        program, counters = compile_ops(pipeline.ops), Counters()
        feed = Feed(deal, dataset.chunks)
        chunks = chunks_of(dataset, feed, tally)
        self.maker = Maker(
            pipeline, dataset, chunks, program, BufferPool(), decode, Concurrency(), counters, tally, self, is_urgent
        )
        work = feed.work(deal.start(0))
        planned = [self.maker.plan(number, next(work)) for number in range(10)]
        waited = [self.ready.get(timeout=DEADLINE_S) for ticket in planned if ticket.num_missing]
        self.tickets = sorted(
            {id(ticket): ticket for ticket in (*planned, *waited)}.values(), key=lambda one: one.number
        )

    def on_ready(self, ticket: Ticket) -> None:
        self.ready.put(ticket)

    def on_made(self, ticket: Ticket) -> None:
        self.made.put(self.name)

    def on_crash(self, error: BaseException) -> None:
        self.made.put(repr(error))


@pytest.fixture
def decode() -> Iterator[DecodePool]:
    pool = DecodePool(1)
    yield pool
    pool.close(time.monotonic() + DEADLINE_S)


def unchanged(fields: dict[str, Any]) -> dict[str, Any]:
    return fields


def burning(seconds: float) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function that takes so much CPU for each sample."""

    def burn(fields: dict[str, Any]) -> dict[str, Any]:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass
        return fields

    return burn


def held(folder: Path, decode: DecodePool) -> threading.Event:
    """Keep the only thread of a pool in a sample until the event is set."""
    go, begun = threading.Event(), threading.Event()

    def wait(fields: dict[str, Any]) -> dict[str, Any]:
        begun.set()
        assert go.wait(DEADLINE_S)
        return fields

    job = Job(folder, "holds", decode, queue.SimpleQueue(), wait)
    job.maker.start(job.tickets[0])
    assert begun.wait(DEADLINE_S)
    return go


def names(made: queue.SimpleQueue[str], count: int) -> list[str]:
    return [made.get(timeout=DEADLINE_S) for _ in range(count)]


def test_whose_consumer_waits_comes_before_what_was_asked_for_earlier(tmp_path: Path, decode: DecodePool) -> None:
    made: queue.SimpleQueue[str] = queue.SimpleQueue()
    fed = Job(tmp_path, "fed", decode, made, unchanged)
    starving = Job(tmp_path, "starving", decode, made, unchanged, is_urgent=lambda: True)
    go = held(tmp_path, decode)
    for ticket in fed.tickets:
        fed.maker.start(ticket)
    starving.maker.start(starving.tickets[0])
    go.set()
    assert names(made, 11) == ["starving"] + ["fed"] * 10


def test_two_that_starve_share_the_threads_by_time_however_much_each_asks_for(
    tmp_path: Path, decode: DecodePool
) -> None:
    made: queue.SimpleQueue[str] = queue.SimpleQueue()
    many = Job(tmp_path, "many", decode, made, burning(0.002))
    few = Job(tmp_path, "few", decode, made, burning(0.002))
    go = held(tmp_path, decode)
    for ticket in many.tickets:
        many.maker.start(ticket)
    for ticket in few.tickets[:3]:
        few.maker.start(ticket)
    go.set()
    assert names(made, 13)[:8].count("few") == 3


def test_a_job_that_had_nothing_to_do_has_not_saved_up_time(tmp_path: Path, decode: DecodePool) -> None:
    made: queue.SimpleQueue[str] = queue.SimpleQueue()
    early = Job(tmp_path, "early", decode, made, burning(0.002))
    late = Job(tmp_path, "late", decode, made, burning(0.002))
    for ticket in early.tickets[:5]:
        early.maker.start(ticket)
    names(made, 5)
    go = held(tmp_path, decode)
    for ticket in early.tickets[5:]:
        early.maker.start(ticket)
    for ticket in late.tickets:
        late.maker.start(ticket)
    go.set()
    assert 3 <= names(made, 15)[:10].count("late") <= 7


def test_rows_of_a_closed_maker_are_not_begun(tmp_path: Path, decode: DecodePool) -> None:
    made: queue.SimpleQueue[str] = queue.SimpleQueue()
    closed = Job(tmp_path, "closed", decode, made, unchanged)
    other = Job(tmp_path, "other", decode, made, unchanged)
    go = held(tmp_path, decode)
    closed.maker.start(closed.tickets[0])
    other.maker.start(other.tickets[0])
    closed.maker.close(time.monotonic() + DEADLINE_S)
    go.set()
    assert names(made, 1) == ["other"]
    assert made.empty()
