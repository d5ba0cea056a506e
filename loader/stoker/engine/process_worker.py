"""The program of a worker process that makes batches of a pipeline."""

from __future__ import annotations

import logging
import os
import select
import threading
import warnings
from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import Any

from stoker.backends.registry import compile_ops
from stoker.batch.pool import BufferPool
from stoker.engine.chunk_source import chunks_of
from stoker.engine.engine import Engine
from stoker.engine.feed import Deal, Feed
from stoker.engine.killers import Killers
from stoker.engine.local import delivery_of
from stoker.engine.opening import open_data
from stoker.engine.prepared import open_prepared, with_prepared
from stoker.engine.prepared_stats import PreparedCounts
from stoker.engine.process_share import Share
from stoker.engine.process_wire import (
    Allow,
    Answer,
    Ask,
    Begin,
    Counts,
    Failed,
    Made,
    Ready,
    Setup,
    order_of,
    send_report,
)
from stoker.engine.retries import RetryTally
from stoker.engine.stats import Counters
from stoker.engine.ticket import Ticket
from stoker.errors import ClosedError, DeviceLostError, StokerWarning
from stoker.memory.arena import Arena
from stoker.pipeline import Pipeline
from stoker.processes.channel import Channel, ChannelClosedError, Message
from stoker.processes.ending import EXIT_DEVICE_LOST
from stoker.processes.objects import Encoder
from stoker.processes.payload import unpack
from stoker.storage.cache import CacheStats, ChunkCache

_LOG = logging.getLogger("stoker")

_FLUSH_S = 1.0


def main(channel: Channel, inherited: Any) -> None:  # noqa: ARG001  # every child program has the same signature
    """Work until the trainer hangs up."""
    try:
        _work(channel)
    except ChannelClosedError:
        return


def _work(channel: Channel) -> None:
    first = channel.receive(None)
    assert first is not None, "a wait without a deadline gives a message"
    try:
        worker = _opened(channel, first)
    except ChannelClosedError:
        raise
    except BaseException as error:  # noqa: BLE001  # the start's outermost loop: the trainer must hear of it
        send_report(channel, Failed(None, error))
        channel.flush(None)
        return
    worker.run()


def _opened(channel: Channel, first: Message) -> _Worker:
    setup = order_of(first)
    assert isinstance(setup, Setup), "the trainer begins with it"
    (fd,) = first.fds
    pipeline: Pipeline = unpack(fd).load()
    os.close(fd)
    warnings.simplefilter("ignore", StokerWarning)  # the trainer has opened the same data, and warned
    return _Worker(channel, setup, pipeline)


class _Worker:
    """Runs one engine at a time over its share of the batches.

    The main thread alone uses the channel; a thread (``stoker-take``) waits for the engine's batches and wakes it.
    """

    def __init__(self, channel: Channel, setup: Setup, pipeline: Pipeline) -> None:
        self._channel = channel
        self._setup = setup
        self._pipeline = pipeline
        self._program = compile_ops(pipeline.ops, setup.backend)
        self._killers = Killers()
        self._tally = RetryTally()
        self._cache = None if setup.cache is None else ChunkCache(setup.cache)
        self._dataset = open_data(pipeline, self._tally, cache=self._cache)
        threads = setup.limits.num_threads
        self._prepared = open_prepared(pipeline, self._program, self._dataset, threads, setup.cache)
        deal = Deal(pipeline, self._dataset.chunks.num_samples, setup.rank)
        self._feed = Feed(deal, self._dataset.chunks)
        self._share = Share(deal, setup.num_workers)
        self._counters = Counters()
        self._arena = _arena(setup.arena_bytes)
        allocate = {} if self._arena is None else {"allocate": self._arena.allocate}
        self._pool = BufferPool(setup.idle_bytes, **allocate)
        self._encoder = Encoder(self._pool, self._arena)
        self._engine: Engine | None = None
        self._run = -1
        self._taken: deque[tuple[int, Ticket | BaseException]] = deque()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        fds = () if self._arena is None else (self._arena.fd,)
        send_report(channel, Ready(self._dataset.fingerprint), fds=fds)

    def run(self) -> None:
        """Obey and report until the trainer hangs up: ChannelClosedError."""
        while True:
            while (message := self._channel.receive(0.0)) is not None:
                self._obey(message)
            while self._taken:
                self._report(*self._taken.popleft())
            self._wait()

    def _wait(self) -> None:
        """Wait for a message, for a batch, or for room in the socket."""
        poll = select.poll()
        has_room = self._channel.flush(0.0)
        poll.register(self._channel.fileno(), select.POLLIN | (0 if has_room else select.POLLOUT))
        poll.register(self._wake, select.POLLIN)
        for fd, _ in poll.poll():
            if fd == self._wake:
                os.eventfd_read(self._wake)

    def _obey(self, message: Message) -> None:
        match order_of(message):
            case Begin() as begin:
                self._encoder.release(begin.returned)
                self._killers.add(begin.killers)
                self._begin(begin)
            case Allow(num_allowed, returned, killers):
                self._encoder.release(returned)
                self._killers.add(killers)
                assert self._engine is not None, "who has no share is allowed nothing"
                self._engine.allow(num_allowed)
            case Ask():
                stage, text = self._engine.waits_for() if self._engine is not None else ("start", "nothing was asked")
                send_report(self._channel, Answer(stage, text))
            case Setup():
                raise AssertionError("a worker is set up once")

    def _begin(self, begin: Begin) -> None:
        if self._engine is not None:
            self._engine.close()
        self._taken.clear()
        self._run = begin.run
        work = self._share.work(self._feed, begin.position, self._setup.worker_index, begin.num_skipped)
        first = next(work, None)
        if first is None:  # it has no share
            self._engine = None
            return
        chunks = chunks_of(self._dataset, self._feed, self._tally)
        program, source = with_prepared(self._prepared, self._program, chunks)
        self._engine = Engine(
            self._pipeline,
            self._dataset,
            source,
            program,
            self._pool,
            self._setup.limits,
            self._counters,
            self._tally,
            first_epoch=first.epoch,  # what is skipped may end in a later one than the position is in
            num_allowed=begin.num_allowed,
            killers=self._killers,
            backend=self._setup.backend,
        )
        self._engine.start(chain([first], work), begin.num_careful)
        threading.Thread(target=self._take, args=(self._engine, begin.run), name="stoker-take", daemon=True).start()

    def _take(self, engine: Engine, run: int) -> None:
        """Bring what the engine makes to the main thread."""
        for result in _results(engine):
            self._taken.append((run, result))
            del result  # its memory is not to be held until the next is there
            os.eventfd_write(self._wake, 1)

    def _report(self, run: int, result: Ticket | BaseException) -> None:
        if run != self._run:
            return
        if isinstance(result, DeviceLostError):
            _LOG.error("worker %d ends, and another one takes its place: %s", self._setup.worker_index, result)
            self._channel.flush(_FLUSH_S)
            os._exit(EXIT_DEVICE_LOST)  # the driver may not let go of what is broken
        if isinstance(result, BaseException):
            send_report(self._channel, Failed(run, result))
        else:
            made = Made(run, delivery_of(result), result.ready_s, self._counts(), tuple(result.killers))
            send_report(self._channel, made, self._encoder)

    def _counts(self) -> Counts:
        done = self._counters
        return Counts(
            done.reads,
            done.bytes_read,
            done.read_s,
            done.decode_s,
            done.assemble_s,
            self._tally.stats(),
            CacheStats() if self._cache is None else self._cache.stats(),
            PreparedCounts() if self._prepared is None else self._prepared.counts,
        )


def _results(engine: Engine) -> Iterator[Ticket | BaseException]:
    """What an engine makes, until it fails or is closed."""
    while True:
        try:
            ticket = engine.next()
        except ClosedError:
            return
        except BaseException as error:  # noqa: BLE001  # the thread's outermost loop: the trainer must hear of it
            yield error
            return
        yield ticket
        del ticket


def _arena(max_bytes: int) -> Arena | None:
    try:
        return Arena.create(max_bytes)
    except OSError:  # the batches then go through the socket
        return None
