"""Workers that are threads of the trainer's process."""

from __future__ import annotations

import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from torch.utils.data import default_collate

from stoker import leaving
from stoker.batch.pool import BufferPool
from stoker.compat import collate
from stoker.compat.crew import Event, Failed, Job, Made, Task
from stoker.compat.fetch import fetcher_of
from stoker.errors import ClosedError, SpecError

if TYPE_CHECKING:
    from types import FrameType


CLOSE_S: Final = 1.5
"""How long closing waits for what the threads have in hand."""


class ThreadCrew:
    """For map-style datasets that release the interpreter's lock; they share one dataset, and nothing is copied.

    They draw on the process's own generators, which are not seeded here: a dataset that draws from them gives other
    numbers in each run. ``torch.utils.data.get_worker_info()`` is None in them.
    """

    def __init__(self, num_workers: int) -> None:
        self._desk = _Desk(num_workers)
        self._collate = collate.into(BufferPool())
        self._job: Job | None = None
        leaving.close_later(self, self._desk)

    @property
    def num_workers(self) -> int:
        return len(self._desk.tasks)

    def begin(self, job: Job) -> None:
        """See :class:`stoker.compat.crew.Crew`."""
        if job.is_iterable or job.worker_init_fn is not None or job.seeding == "sample":
            raise SpecError(
                "threads share one dataset and one set of generators: worker_method='thread' takes neither iterable "
                "datasets, worker_init_fn, nor seeding='sample'; leave worker_method out"
            )
        self._desk.run += 1
        self._desk.withdrawn.clear()
        self._job = replace(job, collate_fn=self._collate) if job.collate_fn is default_collate else job
        self._desk.start()

    def submit(self, worker_index: int, task: Task) -> None:
        """See :class:`stoker.compat.crew.Crew`."""
        assert self._job is not None, "begin() comes first"
        self._desk.tasks[worker_index].put((self._desk.run, self._job, task))

    def withdraw(self, worker_index: int, task: Task) -> bool:
        """See :class:`stoker.compat.crew.Crew`."""
        self._desk.withdrawn.add((self._desk.run, worker_index, task.batch_index))
        return True

    def receive(self, timeout_s: float) -> Event | None:
        """See :class:`stoker.compat.crew.Crew`."""
        while True:
            try:
                told = self._desk.events.get(block=timeout_s > 0, timeout=timeout_s)
            except queue.Empty:
                return None
            if told is None:
                raise ClosedError("the loader was closed while a batch was waited for")
            run, event = told
            if run == self._desk.run:
                return event

    def replace(self, worker_index: int, state: Any = None) -> None:
        """Threads do not get lost."""

    def waits_for(self, worker_index: int) -> str:
        """See :class:`stoker.compat.crew.Crew`."""
        thread = self._desk.threads[worker_index]
        frame: FrameType | None = sys._current_frames().get(thread.ident or 0)
        where = "".join(traceback.format_stack(frame)[-3:]) if frame is not None else "it has ended\n"
        return f"thread {thread.name}:\n{where}"

    def is_active(self, worker_index: int) -> bool:  # noqa: ARG002  # the seam's
        """Not to be told for one thread."""
        return True

    def close(self) -> None:
        """See :class:`stoker.compat.crew.Crew`. A thread that is in users' code for longer ends with that."""
        self._desk.close()


class _Desk:
    """What the threads share with their crew, and all that they refer to, so that a forgotten crew ends them."""

    def __init__(self, num_workers: int) -> None:
        self.run = 0
        self.threads: list[threading.Thread] = []
        self.withdrawn: set[tuple[int, int, int]] = set()
        self.events: queue.SimpleQueue[tuple[int, Event] | None] = queue.SimpleQueue()
        self.tasks: list[queue.SimpleQueue[tuple[int, Job, Task] | None]] = [
            queue.SimpleQueue() for _ in range(num_workers)
        ]

    def wants(self, run: int) -> bool:
        return run == self.run

    def start(self) -> None:
        while len(self.threads) < len(self.tasks):
            index = len(self.threads)
            thread = threading.Thread(target=_work, args=(self, index), name=f"stoker-fetch-{index}", daemon=True)
            self.threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Let the threads end: the interpreter's exit, while one is in native code, would abort the process."""
        self.run += 1
        self.events.put(None)
        for tasks in self.tasks:
            tasks.put(None)
        deadline_s = time.monotonic() + CLOSE_S
        for thread in self.threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))


def _work(desk: _Desk, index: int) -> None:
    while (order := desk.tasks[index].get()) is not None:
        run, job, task = order
        if desk.wants(run) and (run, index, task.batch_index) not in desk.withdrawn:
            desk.events.put((run, _fetch(index, job, task, partial(desk.wants, run))))
        del order, job, task  # nothing of the user's is kept while it waits


def _fetch(index: int, job: Job, task: Task, is_wanted: Callable[[], bool]) -> Event:
    try:
        value = fetcher_of(job, _Watched(job.dataset, is_wanted), job.collate_fn).fetch(task)
    except BaseException as error:  # noqa: BLE001  # the thread's outermost loop: the trainer raises it
        return Failed(index, task.batch_index, error)
    return Made(index, task.batch_index, value)


class _Watched:
    """A dataset that gives no more samples once the batch is not wanted, so that closing need not wait for it all."""

    def __init__(self, dataset: Any, is_wanted: Callable[[], bool]) -> None:
        self._dataset = dataset
        self._is_wanted = is_wanted
        self.__getitems__ = getattr(dataset, "__getitems__", None)

    def __getitem__(self, key: Any) -> Any:
        if not self._is_wanted():
            raise ClosedError("the batch is not wanted any more")
        return self._dataset[key]
