"""Threads that turn the raw samples of a batch into its rows."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from stoker.backends.program import Filtered, Program
from stoker.engine.ticket import Ticket
from stoker.errors import SampleError, SampleOrigin
from stoker.formats.dataset import Dataset
from stoker.sample import RawSample, Write

OnRows = Callable[[Ticket, int, float], None]
"""Called in a decoding thread when rows of a ticket are done: how many, and the CPU seconds they took."""

ROWS_PER_TASK = 8
"""Rows that a thread takes at once: few, so that a slow sample holds up little; several, since Python code that runs
for one sample after the other finds itself in the core's caches, which decoding one sample empties."""


@dataclass(frozen=True, slots=True)
class _Task:
    ticket: Ticket
    first: int
    last: int


class Decoders:
    """A fixed number of threads over one queue of tasks, in the order the batches were submitted; owns its threads."""

    def __init__(self, dataset: Dataset, program: Program, seed: int, num_threads: int, on_rows: OnRows) -> None:
        self._dataset = dataset
        self._program = program
        self._seed = seed
        self._on_rows = on_rows
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._at: dict[int, tuple[SampleOrigin, float]] = {}
        self._threads = [
            threading.Thread(target=self._run, name=f"stoker-decode-{index}", daemon=True)
            for index in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, ticket: Ticket) -> None:
        """Queue all rows of a ticket that has its contents, uniforms and builder."""
        num_rows = ticket.work.num_rows
        for first in range(0, num_rows, ROWS_PER_TASK):
            self._tasks.put(_Task(ticket, first, min(first + ROWS_PER_TASK, num_rows)))

    def in_hand(self) -> list[tuple[SampleOrigin, float]]:
        """The samples being decoded, each with the seconds since its decoding began; the longest first."""
        now = time.monotonic()
        return sorted(((origin, now - begun) for origin, begun in self._at.copy().values()), key=lambda item: -item[1])

    def close(self, deadline_s: float) -> None:
        """Stop after the rows in hand, or at the deadline (of the monotonic clock), whichever comes first."""
        while True:
            try:
                self._tasks.get_nowait()
            except queue.Empty:
                break
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            begun = time.thread_time()
            try:
                self._rows(task)
            except BaseException as error:  # noqa: BLE001  # the thread's outermost loop: the trainer must hear of it
                task.ticket.failure = error
            self._on_rows(task.ticket, task.last - task.first, time.thread_time() - begun)
            del task

    def _rows(self, task: _Task) -> None:
        """Run the ops on all rows, then make their pixels."""
        ticket, thread = task.ticket, threading.get_ident()
        prepared: list[tuple[int, SampleOrigin, list[Write]]] = []
        for row in range(task.first, task.last):
            raw = self._raw(ticket, row)
            if raw is not None:
                self._at[thread] = (raw.origin, time.monotonic())
                writes = self._prepared(ticket, row, raw)
                prepared.append((row, raw.origin, writes))
        for row, origin, writes in prepared:
            self._at[thread] = (origin, time.monotonic())
            try:
                for write in writes:
                    write()
            except SampleError as error:
                ticket.errors[row] = error.at(origin)
        self._at.pop(thread, None)

    def _raw(self, ticket: Ticket, row: int) -> RawSample | None:
        work = ticket.work
        content = ticket.contents[work.use_at[row]]
        chunk_row = int(work.rows[row])
        if not isinstance(content, list):
            chunk_index = work.uses[work.use_at[row]].chunk_index
            ticket.errors[row] = SampleError(
                str(content), op="read", origin=self._dataset.origin(chunk_index, chunk_row)
            )
            ticket.errors[row].__cause__ = content
            return None
        found: RawSample | SampleError = content[chunk_row]
        if isinstance(found, SampleError):
            ticket.errors[row] = found
            return None
        return found

    def _prepared(self, ticket: Ticket, row: int, raw: RawSample) -> list[Write]:
        """Run the ops on a row; what is returned makes its pixels."""
        assert ticket.uniforms is not None
        assert ticket.builder is not None
        work = ticket.work
        try:
            sample = self._program.run(
                raw, index=int(work.samples[row]), seed=self._seed, epoch=work.epoch, uniforms=ticket.uniforms[row]
            )
            if sample.conversion is not None:
                ticket.conversions[row] = sample.conversion
            return ticket.builder.prepare(row, sample)
        except SampleError as error:
            ticket.errors[row] = error.at(raw.origin)
        except Filtered as refusal:
            ticket.filtered[row] = refusal
        return []
