"""The loader's engine: plans batches ahead, reads, decodes and hands them out in order."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from stoker.backends.options import AUTO_BACKEND, Backend
from stoker.backends.program import Program
from stoker.batch.pool import BufferPool
from stoker.engine.chunk_source import ChunkSource
from stoker.engine.decoders import DecodePool
from stoker.engine.feed import Work
from stoker.engine.killers import Killers
from stoker.engine.maker import Maker
from stoker.engine.retries import RetryTally
from stoker.engine.stats import Counters
from stoker.engine.ticket import Ticket
from stoker.errors import ClosedError, SpecError, StallError
from stoker.formats.dataset import Dataset
from stoker.pipeline import Pipeline
from stoker.storage.concurrency import Concurrency

MAX_PLANNED = 64
"""Batches that are planned ahead at most, however small they are."""

MIN_UNMADE = 2
"""Batches that are planned and not yet made at least, even if their chunks exceed ``read_bytes``: one to decode, and
the next to read meanwhile."""

CLOSE_S = 1.5
"""How long :meth:`Engine.close` waits for what its threads have in hand."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the engine may use: decoding threads, bytes of chunks held, bytes of batches ahead, seconds of one wait.

    Raises SpecError if one of them would let nothing through.
    """

    num_threads: int
    read_bytes: int
    prefetch_bytes: int
    timeout_s: float
    concurrency: Concurrency

    def __post_init__(self) -> None:
        for name, least in (("num_threads", 1), ("read_bytes", 0), ("prefetch_bytes", 0)):
            if getattr(self, name) < least:
                raise SpecError(f"{name} is {getattr(self, name)}; it must be at least {least}")
        if self.timeout_s <= 0:
            raise SpecError(f"timeout_s is {self.timeout_s}; it must be above 0")


class Engine:
    """Makes the batches of a feed in its order, each stage bounded in bytes.

    The *planner*, a thread, takes work from the feed and has its chunks read as long as ``read_bytes`` allows, and has
    the next batch decoded as long as ``prefetch_bytes`` allows; a :class:`Maker` does both; the *consumer* is whoever
    calls :meth:`next`. Neither bound can block the batch that the consumer needs next: it is always planned and
    started. Fields that the program makes on a GPU stay there, where ``device`` names it.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        dataset: Dataset,
        source: ChunkSource,
        program: Program,
        pool: BufferPool,
        limits: Limits,
        counters: Counters,
        tally: RetryTally,
        first_epoch: int,
        num_allowed: int | None = None,
        device: str | None = None,
        killers: Killers | None = None,
        backend: Backend = AUTO_BACKEND,
    ) -> None:
        self._limits = limits
        self._num_allowed = num_allowed
        self._counters = counters
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._made: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_waited_for = False
        self._tickets: dict[int, Ticket] = {}
        self._planned: deque[Ticket] = deque()
        self._next_number = 0
        self._num_started = 0
        self._num_unmade = 0
        self._batch_bytes = 0
        self._failure: BaseException | None = None
        self._epoch = first_epoch
        self._closing = False
        self._decode = DecodePool(limits.num_threads)
        self._maker = Maker(
            pipeline,
            dataset,
            source,
            program,
            pool,
            self._decode,
            limits.concurrency,
            counters,
            tally,
            events=self,
            device=device,
            killers=killers,
            backend=backend,
        )
        self._num_careful = 0
        self._planner: threading.Thread | None = None

    def start(self, feed: Iterator[Work], num_careful: int = 0) -> None:
        """Begin to make the batches of ``feed``, the first so many of them carefully; once only."""
        self._num_careful = num_careful
        self._planner = threading.Thread(target=self._plan, args=(feed,), name="stoker-plan", daemon=True)
        self._planner.start()

    def next(self) -> Ticket:
        """The next batch of the feed, made. Blocks, with the limit's deadline.

        Raises what its making failed with, StallError naming what was waited for, or ClosedError.
        """
        begun = time.monotonic()
        while (ticket := self._take(begun)) is None:
            self._wait(begun)
        if ticket.failure is not None:
            raise ticket.failure
        return ticket

    def allow(self, num_batches: int) -> None:
        """Let so many batches of the feed be started in all; there is no such bound where none was given at first."""
        with self._room:
            self._num_allowed = num_batches
            self._room.notify()

    def waits_for(self) -> tuple[str, str]:
        """The stage that the next batch is in, and a text that says more."""
        with self._lock:
            return self._maker.waits_for(self._tickets.get(self._next_number))

    def close(self) -> None:
        """Stop all threads and let go of all memory; may be called again, and from any thread but the engine's."""
        with self._lock:
            self._closing = True
            self._room.notify_all()
            self._wake_consumer()
        deadline_s = time.monotonic() + CLOSE_S
        self._maker.close(deadline_s)
        self._decode.close(deadline_s)
        if self._planner is not None:
            self._planner.join(max(0.0, deadline_s - time.monotonic()))
        with self._lock:
            self._tickets.clear()
            self._planned.clear()

    # -- consumer -----------------------------------------------------------------------------------------------------

    # The consumer is the main thread, where Ctrl-C may come between any two steps of Python code. So it takes plain
    # locks and waits in a SimpleQueue, both in C, where a Condition could leave its lock taken for ever.

    def _take(self, begun: float) -> Ticket | None:
        """The next batch if it is made, else the mark that it is waited for."""
        with self._lock:
            if self._closing:
                raise ClosedError("the loader was closed while a batch was waited for")
            ticket = self._tickets.get(self._next_number)
            if ticket is None or (ticket.batch is None and ticket.failure is None):
                if self._failure is not None:
                    raise self._failure
                self._is_waited_for = True
                return None
            del self._tickets[ticket.number]
            self._next_number += 1
            self._epoch = ticket.work.epoch
            self._count(ticket, begun)
            self._room.notify()
            return ticket

    def _wait(self, begun: float) -> None:
        """Wait until something changed. Raises StallError at the deadline."""
        left = begun + self._limits.timeout_s - time.monotonic()
        try:
            self._made.get(timeout=max(left, 0.0))
        except queue.Empty:
            stage, text = self.waits_for()
            message = f"no batch within {self._limits.timeout_s:g} s (timeout_s): {stage}: {text}"
            raise StallError(message) from None

    def _wake_consumer(self) -> None:
        if self._is_waited_for:
            self._is_waited_for = False
            self._made.put(None)

    def _count(self, ticket: Ticket, begun: float) -> None:
        now = time.monotonic()
        reading = min(max(ticket.ready_s - begun, 0.0), now - begun)
        if ticket.number == 0:
            self._counters.start_s += now - begun
        else:
            self._counters.wait_read_s += reading
            self._counters.wait_decode_s += now - begun - reading
        if ticket.batch is not None:
            self._counters.batches += 1
            self._counters.samples += ticket.batch.num_rows
            self._counters.bytes_made += ticket.num_bytes

    # -- planner ------------------------------------------------------------------------------------------------------

    def _plan(self, feed: Iterator[Work]) -> None:
        try:
            for number, work in enumerate(feed):
                if not self._admit(number, work):
                    return
            self._drain()
        except BaseException as error:  # noqa: BLE001  # the thread's outermost loop: the trainer must hear of it
            self.on_crash(error)

    def _admit(self, number: int, work: Work) -> bool:
        """Wait until ``work`` may be read, starting batches meanwhile; False when the engine closes."""
        with self._room:
            while not self._closing and not self._may_read(work):
                self._start_or_wait()
            if self._closing:
                return False
            ticket = self._maker.plan(number, work)
            ticket.careful = number < self._num_careful
            self._tickets[number] = ticket
            self._planned.append(ticket)
            self._num_unmade += 1
        return True

    def _drain(self) -> None:
        """Start what is still planned when the feed has ended."""
        with self._room:
            while self._planned and not self._closing:
                self._start_or_wait()

    def _may_read(self, work: Work) -> bool:
        if work.epoch > self._epoch + 1:
            return False
        if self._num_unmade < MIN_UNMADE:
            return True
        fits = self._maker.held_bytes + self._maker.bytes_to_read(work) <= self._limits.read_bytes
        return fits and len(self._planned) < MAX_PLANNED and not self._may_start()

    def _may_start(self) -> bool:
        if not self._planned or self._planned[0].num_missing:
            return False
        if self._num_allowed is not None and self._num_started >= self._num_allowed:
            return False
        fitting = self._limits.prefetch_bytes // self._batch_bytes if self._batch_bytes else 0
        return self._num_started - self._next_number < max(2, fitting)

    def _start_or_wait(self) -> None:
        if self._may_start():
            self._num_started += 1
            self._maker.start(self._planned.popleft())
        else:
            self._room.wait()

    # -- called by the maker ------------------------------------------------------------------------------------------

    def on_ready(self, ticket: Ticket) -> None:  # noqa: ARG002  # the planner looks for itself
        """See :class:`stoker.engine.maker.Events`."""
        with self._lock:
            self._room.notify()

    def on_made(self, ticket: Ticket) -> None:
        """See :class:`stoker.engine.maker.Events`."""
        with self._lock:
            self._batch_bytes = max(self._batch_bytes, ticket.num_bytes)
            self._num_unmade -= 1
            self._room.notify()
            self._wake_consumer()

    def on_crash(self, error: BaseException) -> None:
        """See :class:`stoker.engine.maker.Events`."""
        with self._lock:
            self._failure = error
            self._wake_consumer()
