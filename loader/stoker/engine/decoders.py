"""Threads that turn the raw samples of a batch into its rows."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
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


class DecodePool:
    """A fixed number of threads for the lines of tasks of one or more makers; owns its threads.

    A thread takes the next task of the neediest line: one whose consumer waits before one whose consumer does not,
    then the one that has used least CPU of late. So a job that is fed leaves the threads to those that starve, and
    starving ones share them evenly, however many batches each has asked for.
    """

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self._lock = threading.Lock()
        self._lines: list[DecodeLine] = []
        self._reached_s = 0.0  # what the line had used that was taken from last: start-time fair queueing's clock
        self._tokens: queue.SimpleQueue[bool] = queue.SimpleQueue()  # True for each task; False ends a thread
        self._threads = [
            threading.Thread(target=self._run, name=f"stoker-decode-{index}", daemon=True)
            for index in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    def line(
        self, dataset: Dataset, program: Program, seed: int, on_rows: OnRows, is_urgent: Callable[[], bool]
    ) -> DecodeLine:
        """A new line of tasks. ``is_urgent`` is called under the pool's lock: it may take none itself."""
        return DecodeLine(self, dataset, program, seed, on_rows, is_urgent)

    def close(self, deadline_s: float) -> None:
        """Stop after the rows in hand, or at the deadline (of the monotonic clock), whichever comes first."""
        with self._lock:
            for line in self._lines:
                line.tasks.clear()
        for _ in self._threads:
            self._tokens.put(False)
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))

    def put(self, line: DecodeLine, tasks: list[_Task]) -> None:
        """Queue tasks at the end of a line."""
        with self._lock:
            if not line.tasks:  # it has not saved up the time in which it had nothing to do
                line.used_s = max(line.used_s, self._reached_s)
            if line not in self._lines:
                self._lines.append(line)
            line.tasks.extend(tasks)
        for _ in tasks:
            self._tokens.put(True)

    def forget(self, line: DecodeLine) -> None:
        """Drop what a line has queued."""
        with self._lock:
            line.tasks.clear()
            if line in self._lines:
                self._lines.remove(line)

    def _take(self) -> tuple[DecodeLine, _Task] | None:
        """The task that is needed most; None if its line was closed meanwhile."""
        with self._lock:
            waiting = [line for line in self._lines if line.tasks]
            if not waiting:
                return None
            line = waiting[0] if len(waiting) == 1 else min(waiting, key=DecodeLine.need)
            self._reached_s = max(self._reached_s, line.used_s)
            return line, line.tasks.popleft()

    def _run(self) -> None:
        while self._tokens.get():
            taken = self._take()
            if taken is not None:
                line, task = taken
                line.run(task)
                del line, task
            del taken


class DecodeLine:
    """The tasks of one maker, in the order its batches were submitted."""

    def __init__(
        self,
        pool: DecodePool,
        dataset: Dataset,
        program: Program,
        seed: int,
        on_rows: OnRows,
        is_urgent: Callable[[], bool],
    ) -> None:
        self._pool = pool
        self._dataset = dataset
        self._program = program
        self._seed = seed
        self._on_rows = on_rows
        self._is_urgent = is_urgent
        self._at: dict[int, tuple[SampleOrigin, float]] = {}
        self.tasks: deque[_Task] = deque()
        """Under the pool's lock."""
        self.used_s = 0.0
        """CPU seconds that it has had, those in which it had nothing to do counted as if it had."""

    def need(self) -> tuple[bool, float]:
        """Smaller for those that come first."""
        return not self._is_urgent(), self.used_s

    def submit(self, ticket: Ticket) -> None:
        """Queue all rows of a ticket that has its contents, uniforms and builder."""
        num_rows = ticket.work.num_rows
        firsts = range(0, num_rows, ROWS_PER_TASK)
        self._pool.put(self, [_Task(ticket, first, min(first + ROWS_PER_TASK, num_rows)) for first in firsts])

    def in_hand(self) -> list[tuple[SampleOrigin, float]]:
        """The samples being decoded, each with the seconds since its decoding began; the longest first."""
        now = time.monotonic()
        return sorted(((origin, now - begun) for origin, begun in self._at.copy().values()), key=lambda item: -item[1])

    def close(self) -> None:
        """Begin no more rows; those in hand are still finished."""
        self._pool.forget(self)

    def run(self, task: _Task) -> None:
        """Make the rows of a task, in a thread of the pool."""
        begun = time.thread_time()
        try:
            self._rows(task)
        except BaseException as error:  # noqa: BLE001  # the thread's outermost loop: the trainer must hear of it
            task.ticket.failure = error
        seconds = time.thread_time() - begun
        self.used_s += seconds
        self._on_rows(task.ticket, task.last - task.first, seconds)

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
