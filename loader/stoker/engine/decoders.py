"""Threads that turn the raw samples of a batch into its rows."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from stoker.backends.program import Filtered, Program
from stoker.engine.ticket import Ticket
from stoker.errors import SampleError, SampleOrigin
from stoker.formats.dataset import Dataset
from stoker.sample import Gatherer, RawSample, Sample, Write

_Prepared: TypeAlias = tuple[int, SampleOrigin, list[Write]]
"""A row, where its sample comes from, and what makes its pixels."""

OnRows = Callable[[Ticket, int, float], None]
"""Called in a decoding thread when rows of a ticket are done: how many, and the CPU seconds they took."""


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
        size = self._program.rows_per_task
        self._pool.put(self, [_Task(ticket, row, min(row + size, num_rows)) for row in range(0, num_rows, size)])

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
        prepared: list[_Prepared] = []
        paused: list[tuple[int, Sample]] = []
        for row in range(task.first, task.last):
            raw = None if row in ticket.errors else self._raw(ticket, row)
            if raw is not None:
                self._at[thread] = (raw.origin, time.monotonic())
                sample = self._begun(ticket, row, raw)
                if self._program.stops:
                    paused += [(row, sample)] if sample is not None else []
                else:
                    prepared.append((row, raw.origin, self._writes(ticket, row, sample)))
        prepared += self._continued(ticket, paused)
        if self._program.gatherer is not None:
            self._make_together(ticket, self._program.gatherer, prepared)
        else:
            self._make(ticket, prepared)
        self._at.pop(thread, None)

    def _make(self, ticket: Ticket, prepared: list[_Prepared]) -> None:
        thread = threading.get_ident()
        for row, origin, writes in prepared:
            self._at[thread] = (origin, time.monotonic())
            try:
                for write in writes:
                    write()
            except SampleError as error:
                ticket.errors[row] = error.at(origin)

    def _make_together(self, ticket: Ticket, gatherer: Gatherer, prepared: list[_Prepared]) -> None:
        rows = [(row, origin) for row, origin, writes in prepared for _ in writes]
        if not rows:
            return
        self._at[threading.get_ident()] = (rows[0][1], time.monotonic())
        made = gatherer.make([write for _, _, writes in prepared for write in writes])
        for (row, origin), error in zip(rows, made, strict=True):
            if error is not None:
                ticket.errors.setdefault(row, error.at(origin))

    def _continued(self, ticket: Ticket, paused: list[tuple[int, Sample]]) -> list[_Prepared]:
        """Run the ops from stop to stop, and make at each what is better made for all rows together."""
        assert ticket.uniforms is not None
        program, thread = self._program, threading.get_ident()
        for stop_index in range(len(program.stops) if paused else 0):
            if program.gatherer is not None:
                program.gatherer.make_fields([sample for _, sample in paused])
            running = []
            for row, sample in paused:
                self._at[thread] = (sample.origin, time.monotonic())
                try:
                    program.go_on(sample, ticket.uniforms[row], stop_index)
                    running.append((row, sample))
                except (SampleError, Filtered) as verdict:
                    _note(ticket, row, sample.origin, verdict)
            paused = running
        return [(row, sample.origin, self._writes(ticket, row, sample)) for row, sample in paused]

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

    def _begun(self, ticket: Ticket, row: int, raw: RawSample) -> Sample | None:
        """Run the ops on a row up to the first stop; None if it turned out bad or unwanted."""
        assert ticket.uniforms is not None
        work = ticket.work
        try:
            return self._program.begin(
                raw, index=int(work.samples[row]), seed=self._seed, epoch=work.epoch, uniforms=ticket.uniforms[row]
            )
        except (SampleError, Filtered) as verdict:
            _note(ticket, row, raw.origin, verdict)
        return None

    def _writes(self, ticket: Ticket, row: int, sample: Sample | None) -> list[Write]:
        """Put a sample into its row; what is returned makes its pixels."""
        assert ticket.builder is not None
        if sample is None:
            return []
        if sample.conversion is not None:
            ticket.conversions[row] = sample.conversion
        try:
            return ticket.builder.prepare(row, sample)
        except SampleError as error:
            _note(ticket, row, sample.origin, error)
        return []


def _note(ticket: Ticket, row: int, origin: SampleOrigin, verdict: SampleError | Filtered) -> None:
    if isinstance(verdict, Filtered):
        ticket.filtered[row] = verdict
    else:
        ticket.errors[row] = verdict.at(origin)
