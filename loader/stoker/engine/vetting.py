"""Tries the samples of batches that may have ended the process that made them."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from stoker.backends.options import Backend
from stoker.engine.killers import Killer, Killers
from stoker.engine.prepared import PreparedSample
from stoker.engine.sandbox import Sandbox
from stoker.engine.ticket import Ticket
from stoker.engine.vetting_child import Trial
from stoker.errors import ClosedError, DataError, SampleError, StorageError
from stoker.formats.dataset import ChunkContent, Dataset
from stoker.pipeline import Pipeline
from stoker.processes.channel import Channel
from stoker.processes.payload import Payload, pack
from stoker.sample import RawSample

ROW_S: Final = 60.0
"""For making one sample: one that takes longer is taken for one that hangs."""

MAX_CHILDREN: Final = 8
_ROWS_PER_TASK: Final = 8
_IDLE_S: Final = 10.0
"""How long children are kept that have nothing to try: the next careful batch is often not far."""

_LOG: Final = logging.getLogger("stoker")


@dataclass(slots=True)
class _Vetted:
    """A ticket whose rows are being tried."""

    ticket: Ticket
    num_tasks: int


@dataclass(frozen=True, slots=True)
class _Task:
    vetted: _Vetted
    rows: range


class Vetter:
    """Has the rows of careful tickets tried one by one, each thread of it in a child process of its own.

    A row that ends its process twice becomes a SampleError of the ticket and one of ``killers``; whatever else a trial
    comes to is left to the threads that make the rows. Threads and processes begin with the first careful ticket. Then
    ``on_vetted`` is called, in such a thread; ``ticket.failure`` is set if there was no process to be had.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        backend: Backend,
        dataset: Dataset,
        killers: Killers,
        on_vetted: Callable[[Ticket], None],
        *,
        num_children: int,
        row_s: float = ROW_S,
    ) -> None:
        self._pipeline = pipeline
        self._backend = backend
        self._dataset = dataset
        self._killers = killers
        self._on_vetted = on_vetted
        self._max_threads = min(num_children, MAX_CHILDREN)
        self._row_s = row_s
        self._lock = threading.Lock()
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._num_open = 0  # tasks not done
        self._threads: list[threading.Thread] = []
        self._payload: Payload | None = None
        self._closing: Channel | None = None
        self._end_of_closing: Any = None
        self._is_closed = False
        self._at: dict[int, tuple[str, float]] = {}

    def submit(self, ticket: Ticket) -> None:
        """Have the rows tried that are not condemned yet. From any thread; returns at once."""
        num_rows = ticket.work.num_rows
        rows = [range(row, min(row + _ROWS_PER_TASK, num_rows)) for row in range(0, num_rows, _ROWS_PER_TASK)]
        vetted = _Vetted(ticket, len(rows))
        with self._lock:
            if self._is_closed:
                return
            if self._closing is None:
                self._closing, self._end_of_closing = Channel.pair()
            self._num_open += len(rows)
            while len(self._threads) < min(self._num_open, self._max_threads):
                thread = threading.Thread(target=self._run, name="stoker-vet", daemon=True)
                self._threads.append(thread)
                thread.start()
        for task in rows:
            self._tasks.put(_Task(vetted, task))

    def in_hand(self) -> tuple[str, float] | None:
        """The sample that has been tried for longest, and the seconds that took so far."""
        now_s = time.monotonic()
        tried = [(now_s - begun_s, what) for what, begun_s in list(self._at.values())]
        return (max(tried)[1], max(tried)[0]) if tried else None

    def stop(self) -> None:
        """Have all threads and children end; harmless again, and from any thread."""
        with self._lock:
            self._is_closed = True
            if self._end_of_closing is not None:
                self._end_of_closing.close()
            for _ in self._threads:
                self._tasks.put(None)

    def close(self, deadline_s: float) -> None:
        """Wait for their end, until the deadline (of the monotonic clock)."""
        self.stop()
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        if self._closing is not None:
            self._closing.close()

    # -- the threads --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        sandbox: Sandbox | None = None
        while True:
            try:
                task = self._tasks.get(timeout=_IDLE_S if sandbox is not None else None)
            except queue.Empty:
                assert sandbox is not None, "without a child the wait has no end"
                sandbox.close()
                sandbox = None
                continue
            if task is None or self._is_closed:
                break
            try:
                sandbox = sandbox or self._sandbox()
                self._vet(task, sandbox)
            except ClosedError:
                break
            except BaseException as error:  # noqa: BLE001  # the thread's outermost loop: the trainer must hear of it
                task.vetted.ticket.failure = error
            self._done(task)
        if sandbox is not None:
            sandbox.close()

    def _sandbox(self) -> Sandbox:
        with self._lock:
            if self._payload is None:
                self._payload = pack(self._pipeline, "pipeline")
            assert self._closing is not None, "it is there before any task"
            return Sandbox(self._backend, self._payload, self._closing, self._row_s)

    def _vet(self, task: _Task, sandbox: Sandbox) -> None:
        ticket, read = task.vetted.ticket, dict[int, ChunkContent]()
        work = ticket.work
        assert ticket.uniforms is not None, "a ticket that is started has them"
        for row in task.rows:
            raw = None if row in ticket.errors else _raw(ticket, row)
            if isinstance(raw, PreparedSample):
                raw = self._again(ticket, row, read)
            if raw is None:
                continue
            index = int(work.samples[row])
            killer = self._killers.get(index)  # it may have been tried since, for another batch
            if killer is None:
                fields = {name: _own(value) for name, value in raw.fields.items()}
                trial = Trial(raw.origin, fields, index, work.epoch, ticket.uniforms[row])
                killer = self._tried(sandbox, trial)
            if killer is not None:
                condemn(ticket, row, killer)

    def _tried(self, sandbox: Sandbox, trial: Trial) -> Killer | None:
        thread, origin = threading.get_ident(), trial.origin
        self._at[thread] = (f"{origin.url} row {origin.row}", time.monotonic())
        try:
            reason = sandbox.verdict(trial)
        finally:
            del self._at[thread]
        if reason is None:
            return None
        killer = Killer(trial.index, reason)
        self._killers.add([killer])
        _LOG.warning("%s", SampleError(reason, origin=origin))
        return killer

    def _done(self, task: _Task) -> None:
        with self._lock:
            self._num_open -= 1
            task.vetted.num_tasks -= 1
            is_last = not task.vetted.num_tasks
        if is_last:
            self._on_vetted(task.vetted.ticket)

    def _again(self, ticket: Ticket, row: int, read: dict[int, ChunkContent]) -> RawSample | None:
        """The raw sample of a row that came decoded: the child has no cache. ``read`` is the chunk read last."""
        work = ticket.work
        chunk_index = work.uses[work.use_at[row]].chunk_index
        if chunk_index not in read:
            read.clear()
            try:
                read[chunk_index] = self._dataset.read_chunk(chunk_index)
            except (StorageError, DataError) as error:  # what is wrong with it is not for the child to find
                read[chunk_index] = error
        return _sample(read[chunk_index], int(work.rows[row]))


def condemn(ticket: Ticket, row: int, killer: Killer) -> None:
    """Make a row a bad sample, if it could be read at all."""
    raw = _raw(ticket, row)
    if raw is not None:
        ticket.errors[row] = SampleError(killer.reason, origin=raw.origin)
        ticket.killers.append(killer)


def _raw(ticket: Ticket, row: int) -> RawSample | None:
    """The sample of a row as it came; None if it could not be read."""
    return _sample(ticket.contents[ticket.work.use_at[row]], int(ticket.work.rows[row]))


def _sample(content: ChunkContent, chunk_row: int) -> RawSample | None:
    found = content[chunk_row] if isinstance(content, list) else None
    return found if isinstance(found, RawSample) else None


def _own(value: Any) -> Any:
    """What can be sent: a view of a chunk is copied."""
    return bytes(value) if isinstance(value, memoryview) else value
