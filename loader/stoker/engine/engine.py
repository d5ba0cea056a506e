"""The loader's engine: plans batches ahead, reads, decodes and hands them out in order."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoker.backends.program import Program
from stoker.batch.builder import BatchBuilder
from stoker.batch.pool import BufferPool
from stoker.engine.decoders import Decoders
from stoker.engine.feed import ChunkUse, Work
from stoker.engine.finish import Finisher
from stoker.engine.probe import Probe
from stoker.engine.readers import Readers
from stoker.engine.retries import RetryTally
from stoker.engine.shelf import ChunkContent, Shelf
from stoker.engine.stats import Counters
from stoker.engine.ticket import Ticket
from stoker.errors import ClosedError, SpecError, StallError
from stoker.formats.dataset import Dataset
from stoker.pipeline import Pipeline
from stoker.storage.concurrency import Concurrency

if TYPE_CHECKING:
    import pyarrow as pa

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
    """Makes the batches of a feed, each stage bounded in bytes.

    Four kinds of threads meet under one lock: the *planner* (one) takes work from the feed and asks for chunks as long
    as ``read_bytes`` allows, and starts decoding of the next batch as long as ``prefetch_bytes`` allows; *readers* put
    chunks on the shelf; *decoders* fill rows, the last of a batch finishes it; the *consumer* is whoever calls
    :meth:`next`. Neither bound can block the batch that the consumer needs next: it is always planned and started.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        dataset: Dataset,
        program: Program,
        pool: BufferPool,
        limits: Limits,
        counters: Counters,
        tally: RetryTally,
        first_epoch: int,
    ) -> None:
        self._pipeline = pipeline
        self._program = program
        self._pool = pool
        self._limits = limits
        self._counters = counters
        self._finisher = Finisher(pipeline, pool, Probe(pipeline, dataset, program, pool))
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._made: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_waited_for = False
        self._shelf = Shelf(lambda chunk_index: int(dataset.chunks.size_bytes[chunk_index]))
        self._tickets: dict[int, Ticket] = {}
        self._planned: deque[Ticket] = deque()
        self._next_number = 0
        self._num_started = 0
        self._num_unmade = 0
        self._batch_bytes = 0
        self._failure: BaseException | None = None
        self._epoch = first_epoch
        self._closing = False
        self._readers = Readers(dataset, self._on_read, self._fail, limits.concurrency, tally)
        self._decoders = Decoders(dataset, program, pipeline.seed, limits.num_threads, self._on_rows)
        self._planner: threading.Thread | None = None

    def start(self, feed: Iterator[Work]) -> None:
        """Begin to make the batches of ``feed``; once only."""
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

    def close(self) -> None:
        """Stop all threads and let go of all memory; may be called again, and from any thread but the engine's."""
        with self._lock:
            self._closing = True
            self._room.notify_all()
            self._wake_consumer()
        deadline_s = time.monotonic() + CLOSE_S
        self._readers.close(deadline_s)
        self._decoders.close(deadline_s)
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
            with self._lock:
                text = self._stall()
            raise StallError(text) from None

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
            self._counters.bytes_made += ticket.batch.nbytes

    def _stall(self) -> str:
        waited = f"no batch within {self._limits.timeout_s:g} s (timeout_s)"
        ticket = self._tickets.get(self._next_number)
        if ticket is None:
            return f"{waited}: the batch was not planned yet; the storage or the index is slow"
        if ticket.num_missing:
            reads = self._readers.in_flight()
            longest = f"; the longest read has taken {reads[0][1]:.1f} s" if reads else ""
            return f"{waited}: storage: {ticket.num_missing} chunks of the next batch are not read yet{longest}"
        in_hand = self._decoders.in_hand()
        longest = f"; {in_hand[0][0]} has taken {in_hand[0][1]:.1f} s" if in_hand else ""
        return f"{waited}: decode: {ticket.num_rows_left} rows of the next batch are not made yet{longest}"

    # -- planner ------------------------------------------------------------------------------------------------------

    def _plan(self, feed: Iterator[Work]) -> None:
        try:
            for number, work in enumerate(feed):
                if not self._admit(number, work):
                    return
            self._drain()
        except BaseException as error:  # noqa: BLE001  # the thread's outermost loop: the trainer must hear of it
            self._fail(error)

    def _admit(self, number: int, work: Work) -> bool:
        """Wait until ``work`` may be read, starting batches meanwhile; False when the engine closes."""
        with self._room:
            while not self._closing and not self._may_read(work):
                self._start_or_wait()
            if self._closing:
                return False
            to_read, num_missing = self._shelf.reserve(work, number)
            ticket = Ticket(number, work, num_missing, ready_s=0.0 if num_missing else time.monotonic())
            self._tickets[number] = ticket
            self._planned.append(ticket)
            self._num_unmade += 1
        self._readers.submit(to_read)
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
        more = sum(self._shelf.chunk_bytes(use) for use in self._shelf.missing(work))
        fits = self._shelf.held_bytes + more <= self._limits.read_bytes
        return fits and len(self._planned) < MAX_PLANNED and not self._may_start()

    def _may_start(self) -> bool:
        if not self._planned or self._planned[0].num_missing:
            return False
        fitting = self._limits.prefetch_bytes // self._batch_bytes if self._batch_bytes else 0
        return self._num_started - self._next_number < max(2, fitting)

    def _start_or_wait(self) -> None:
        if self._may_start():
            self._start(self._planned.popleft())
        else:
            self._room.wait()

    def _start(self, ticket: Ticket) -> None:
        work = ticket.work
        ticket.contents = tuple(self._shelf.content(use) for use in work.uses)
        ticket.uniforms = self._program.uniforms(self._pipeline.seed, work.epoch, work.samples)
        ticket.builder = BatchBuilder(work.num_rows, self._pool, self._pipeline.collate or {})
        ticket.num_rows_left = work.num_rows
        self._num_started += 1
        self._decoders.submit(ticket)

    # -- called by readers and decoders -------------------------------------------------------------------------------

    def _on_read(self, use: ChunkUse, content: ChunkContent, num_bytes: int, seconds: float) -> None:
        with self._lock:
            self._counters.reads += 1
            self._counters.bytes_read += num_bytes
            self._counters.read_s += seconds
            for number in self._shelf.arrived(use, content):
                ticket = self._tickets.get(number)
                if ticket is not None:
                    ticket.num_missing -= 1
                    if not ticket.num_missing:
                        ticket.ready_s = time.monotonic()
                        self._room.notify()

    def _on_rows(self, ticket: Ticket, num_rows: int, cpu_s: float) -> None:
        with self._lock:
            self._counters.decode_s += cpu_s
            ticket.num_rows_left -= num_rows
            if ticket.num_rows_left:
                return
        batch = self._finish(ticket)
        with self._lock:
            ticket.batch = batch
            ticket.contents, ticket.builder, ticket.uniforms = (), None, None
            if batch is not None:
                self._batch_bytes = max(self._batch_bytes, batch.nbytes)
            self._shelf.release(ticket.work)
            self._num_unmade -= 1
            self._room.notify()
            self._wake_consumer()

    def _finish(self, ticket: Ticket) -> pa.RecordBatch | None:
        if ticket.failure is not None:
            return None
        try:
            return self._finisher.finish(ticket)
        except BaseException as error:  # noqa: BLE001  # a decoding thread's outermost loop: the trainer must hear of it
            ticket.failure = error
            return None

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._failure = error
            self._wake_consumer()
