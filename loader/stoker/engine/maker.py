"""Makes batches: reads their chunks, decodes their rows and puts these together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from stoker.backends.options import AUTO_BACKEND, Backend
from stoker.backends.program import Program
from stoker.batch.builder import BatchBuilder
from stoker.batch.pool import BufferPool
from stoker.engine.chunk_source import ChunkSource
from stoker.engine.decoders import DecodePool
from stoker.engine.feed import ChunkUse, Work
from stoker.engine.finish import Finisher
from stoker.engine.killers import Killers
from stoker.engine.probe import Probe
from stoker.engine.readers import Readers
from stoker.engine.retries import RetryTally
from stoker.engine.shelf import Shelf
from stoker.engine.stats import Counters
from stoker.engine.ticket import Ticket
from stoker.engine.vetting import Vetter, condemn
from stoker.formats.dataset import ChunkContent, Dataset
from stoker.pipeline import Pipeline
from stoker.storage.concurrency import Concurrency

if TYPE_CHECKING:
    import pyarrow as pa


class Events(Protocol):
    """What a maker tells its owner, in its own threads and without any lock of its own."""

    def on_ready(self, ticket: Ticket) -> None:
        """The last chunk of a ticket came; it may be started. Not called if none was missing when it was planned."""

    def on_made(self, ticket: Ticket) -> None:
        """``ticket.batch`` or ``ticket.failure`` is set. Tickets are made in any order."""

    def on_crash(self, error: BaseException) -> None:
        """A fault of ours; nothing more will come."""


def never() -> bool:
    """No consumer waits."""
    return False


class Maker:
    """Does what its owner decides: which batch is planned, and started, when. Any thread may call it.

    *Readers*, threads of its own, put chunks on the shelf; the threads of a :class:`DecodePool`, which it may share
    with others, fill rows, and the last of a batch finishes it. Careful tickets go to a :class:`Vetter` before that,
    for which ``backend`` is the program's; ``killers`` are samples that are bad without being looked at.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        dataset: Dataset,
        source: ChunkSource,
        program: Program,
        pool: BufferPool,
        decode: DecodePool,
        concurrency: Concurrency,
        counters: Counters,
        tally: RetryTally,
        events: Events,
        is_urgent: Callable[[], bool] = never,
        device: str | None = None,
        killers: Killers | None = None,
        backend: Backend = AUTO_BACKEND,
    ) -> None:
        self._pipeline = pipeline
        self._source = source
        self._program = program
        self._device = device
        self._pool = pool
        self._counters = counters
        self._events = events
        self._killers = Killers() if killers is None else killers
        self._finisher = Finisher(pipeline, pool, Probe(pipeline, dataset, program, pool, self._killers))
        self._lock = threading.Lock()
        self._url: Callable[[ChunkUse], str] = lambda use: dataset.origin(use.chunk_index, 0).url
        self._shelf = Shelf(lambda chunk_index: int(dataset.chunks.size_bytes[chunk_index]))
        self._reading: dict[int, Ticket] = {}
        self._readers = Readers(source, self._shelf.chunk_bytes, self._on_read, events.on_crash, concurrency, tally)
        self._decoders = decode.line(dataset, program, pipeline.seed, self._on_rows, is_urgent)
        self._vetter = Vetter(
            pipeline,
            backend,
            dataset,
            self._killers,
            self._on_vetted,
            num_children=1 if backend.is_gpu else decode.num_threads,
        )

    @property
    def held_bytes(self) -> int:
        """Bytes of all chunks that are here or asked for."""
        return self._shelf.held_bytes

    def bytes_to_read(self, work: Work) -> int:
        """Bytes of the chunks that planning ``work`` would add."""
        with self._lock:
            return sum(self._shelf.chunk_bytes(use) for use in self._shelf.missing(work))

    def plan(self, number: int, work: Work) -> Ticket:
        """Begin to read what ``work`` needs. ``number`` is one that no other ticket has."""
        with self._lock:
            to_read, num_missing = self._shelf.reserve(work, number)
            ticket = Ticket(number, work, num_missing, ready_s=0.0 if num_missing else time.monotonic())
            if num_missing:
                self._reading[number] = ticket
        self._readers.submit(to_read)
        return ticket

    def start(self, ticket: Ticket) -> None:
        """Begin to decode a ticket whose chunks are all here; once."""
        work = ticket.work
        with self._lock:
            ticket.contents = tuple(self._shelf.content(use) for use in work.uses)
        ticket.uniforms = self._program.uniforms(self._pipeline.seed, work.epoch, work.samples)
        ticket.builder = BatchBuilder(
            work.num_rows,
            self._pool,
            self._pipeline.collate or {},
            device=self._device,
            on_device=self._program.device_fields,
        )
        ticket.num_rows_left = work.num_rows
        for row, killer in self._killers.among(work.samples).items():
            condemn(ticket, row, killer)
        (self._vetter if ticket.careful else self._decoders).submit(ticket)

    def drop(self, ticket: Ticket) -> None:
        """Give up a ticket whose chunks are all here, instead of starting it."""
        with self._lock:
            self._shelf.release(ticket.work)

    def leave(self, lane_index: int) -> None:
        """Close the windows of a lane of which nothing more will be planned."""
        with self._lock:
            self._shelf.leave(lane_index)

    def waits_for(self, ticket: Ticket | None) -> tuple[str, str]:
        """The stage that a ticket which is not made is in, and a text that says more; None for one not yet planned."""
        if ticket is None:
            return "storage", "the batch was not planned yet; the storage or the index is slow"
        if ticket.num_missing:
            reads = self._readers.in_flight()
            longest = f"; the longest read, of {self._url(reads[0][0])}, has taken {reads[0][1]:.1f} s" if reads else ""
            return "storage", f"{ticket.num_missing} chunks of the next batch are not read yet{longest}"
        if ticket.careful and (tried := self._vetter.in_hand()) is not None:
            return "decode", f"samples are tried in a process of their own first; {tried[0]} has taken {tried[1]:.1f} s"
        in_hand = self._decoders.in_hand()
        longest = f"; {in_hand[0][0]} has taken {in_hand[0][1]:.1f} s" if in_hand else ""
        rows = f"{ticket.num_rows_left} rows of the next batch are not made yet" if ticket.builder else "not begun yet"
        return "decode", f"{rows}{longest}"

    def close(self, deadline_s: float) -> None:
        """Stop after what is in hand, or at the deadline (of the monotonic clock), whichever comes first."""
        self._source.close()
        self._vetter.stop()
        self._readers.close(deadline_s)
        self._vetter.close(deadline_s)
        self._decoders.close()

    # -- called by readers and decoders -------------------------------------------------------------------------------

    def _on_read(self, use: ChunkUse, content: ChunkContent, num_bytes: int, seconds: float) -> None:
        ready = []
        with self._lock:
            self._counters.reads += 1
            self._counters.bytes_read += num_bytes
            self._counters.read_s += seconds
            for number in self._shelf.arrived(use, content):
                ticket = self._reading[number]
                ticket.num_missing -= 1
                if not ticket.num_missing:
                    ticket.ready_s = time.monotonic()
                    ready.append(self._reading.pop(number))
        for ticket in ready:
            self._events.on_ready(ticket)

    def _on_vetted(self, ticket: Ticket) -> None:
        if ticket.failure is None:
            self._decoders.submit(ticket)
        else:
            self._on_rows(ticket, ticket.num_rows_left, 0.0)

    def _on_rows(self, ticket: Ticket, num_rows: int, cpu_s: float) -> None:
        with self._lock:
            self._counters.decode_s += cpu_s
            ticket.num_rows_left -= num_rows
            if ticket.num_rows_left:
                return
        begun = time.thread_time()
        batch = self._finish(ticket)
        with self._lock:
            self._counters.assemble_s += time.thread_time() - begun
            ticket.batch = batch
            ticket.contents, ticket.builder, ticket.uniforms = (), None, None
            self._shelf.release(ticket.work)
        self._events.on_made(ticket)

    def _finish(self, ticket: Ticket) -> pa.RecordBatch | None:
        if ticket.failure is not None:
            return None
        try:
            return self._finisher.finish(ticket)
        except BaseException as error:  # noqa: BLE001  # a decoding thread's outermost loop: the trainer must hear of it
            ticket.failure = error
            return None
