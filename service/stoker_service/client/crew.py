"""The workers of a torch dataset's loader, as processes at a service."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Final

from stoker import leaving
from stoker.code.by_value import is_users, users_modules_by_value
from stoker.compat import wire as words
from stoker.compat.crew import CrewOptions, Event, Job, Lost, Task
from stoker.compat.wire import Kind
from stoker.errors import ClosedError
from stoker.processes.payload import fingerprint, pack
from stoker_proto.v1 import stream_pb2 as wire
from stoker_service import addresses
from stoker_service.client import forks
from stoker_service.client.control import Control, JobIdentity
from stoker_service.client.office import CLOSE_S, Office
from stoker_service.client.order_call import Cargo
from stoker_service.client.remote_worker import Gone, News, RemoteWorker
from stoker_service.transport.cargo import digest_of
from stoker_service.transport.host import host_id

DEFAULT_WAIT_S: Final = 300.0
"""How long a place at the service is looked for by a loader without a timeout."""

_PLAIN: Final = frozenset([int, str, float, bool, bytes, type(None)])


def open_crew(url: str, options: CrewOptions) -> RemoteCrew:
    """Open a job at a service. A :class:`stoker.compat.crew.OpenCrew`.

    Raises SpecError if the URL is wrong or the service refuses the job; ServiceError or StallError if no dispatcher
    answers in time; StokerError if versions do not fit, or in a fork of a process that used a service. What else may
    be wrong, such as workers that allow no code, is raised by :meth:`RemoteCrew.receive`.
    """
    address = addresses.parse(url)
    forks.check()
    client_id = uuid.uuid4().hex
    job = JobIdentity(
        pipeline=f"dataset-{client_id}",
        name=options.job,
        num_lanes=options.num_workers,
        world_size=1,
        rank=0,
        has_code=True,
        client_id=client_id,
        host_id=host_id(),
        pipeline_bytes=0,
    )
    wait_s = options.timeout_s or DEFAULT_WAIT_S
    control = Control(address, job)
    try:
        _apart(lambda: control.open(wait_s))
    except BaseException:
        threading.Thread(target=control.close, args=(time.monotonic() + CLOSE_S,), name="stoker-leave").start()
        raise
    return RemoteCrew(options.num_workers, Office(control, job, wait_s))


class RemoteCrew:
    """The :class:`stoker.compat.crew.Crew` whose workers are processes at a service.

    Each worker is a lane of a job of the dispatcher's, which says at which of the service's workers it should be.
    """

    def __init__(self, num_workers: int, office: Office) -> None:
        self._num_workers = num_workers
        self._office = office
        self._pid = os.getpid()
        self._workers: dict[int, RemoteWorker] = {}
        self._run = 0
        self._job: Job | None = None
        self._fingerprint = b""
        self._cargo: Cargo | None = None
        self._is_closed = False
        self._finalizer = leaving.close_later(self, office)
        office.start()

    @property
    def num_workers(self) -> int:
        """See :class:`stoker.compat.crew.Crew`."""
        return self._num_workers

    def begin(self, job: Job) -> None:
        """See :class:`stoker.compat.crew.Crew`."""
        self._check()
        is_new = not (job.goes_on and self._workers)
        if is_new:
            self._pack(job)
        self._run += 1
        self._job = job
        self._office.epoch = self._run - 1
        for index in range(self._num_workers):
            worker = self._workers.get(index)
            if worker is None or worker.is_lost or (is_new and worker.should_move()):
                self._open(index, job, _state_for(index, job))
            else:
                self._tell(worker, job, _state_for(index, job))

    def submit(self, worker_index: int, task: Task) -> None:
        """See :class:`stoker.compat.crew.Crew`."""
        self._check()
        worker = self._workers[worker_index]
        worker.in_hand[task.batch_index] = task.keys
        with users_modules_by_value() if _has_users_code(task.keys) else nullcontext():
            message = b"".join(words.task_message(self._run, task, ()))
        num_rows = len(task.keys) if isinstance(task.keys, list) else 1
        worker.order(
            wire.Order(fetch=wire.Fetch(words=message, num_rows=num_rows, run=self._run, batch_index=task.batch_index))
        )

    def withdraw(self, worker_index: int, task: Task) -> bool:  # noqa: ARG002  # the seam's
        """A service's processes have two tasks in hand at most; those are not taken back."""
        return False

    def receive(self, timeout_s: float) -> Event | None:
        """See :class:`stoker.compat.crew.Crew`.

        Raises SpecError if no worker of the service runs code, StallError if none is free in time, and what a worker
        says is wrong.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._check()
            found = self._office.next(deadline_s - time.monotonic())
            if found is None:
                return None
            worker, news = found
            if self._workers.get(worker.worker_index) is worker:
                event = self._event_of(worker, news)
                if event is not None:
                    return event

    def replace(self, worker_index: int, state: Any = None) -> None:
        """See :class:`stoker.compat.crew.Crew`. Returns at once; the place is looked for meanwhile."""
        self._check()
        assert self._job is not None, "begin() comes first"
        self._open(worker_index, self._job, _state_for(worker_index, self._job) if state is None else state)

    def waits_for(self, worker_index: int) -> str:
        """See :class:`stoker.compat.crew.Crew`."""
        return self._workers[worker_index].doing()

    def is_active(self, worker_index: int) -> bool:
        """See :class:`stoker.compat.crew.Crew`."""
        return self._workers[worker_index].is_active()

    def close(self) -> None:
        """See :class:`stoker.compat.crew.Crew`."""
        self._is_closed = True
        if self._pid == os.getpid():  # a fork has none of the threads
            self._office.close()
        self._finalizer.detach()

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise ClosedError(
                f"this loader belongs to process {self._pid}, whose connections a fork lacks; {forks.REMEDY}"
            )
        if self._is_closed:
            raise ClosedError("the workers of this loader are closed")

    # -- beginning ----------------------------------------------------------------------------------------------------

    def _pack(self, job: Job) -> None:
        cargo = words.cargo_of(job)
        found = fingerprint(cargo)
        if found != self._fingerprint:
            content = pack(cargo, "loader", ships_modules=True).view()
            self._cargo = Cargo(digest_of(content), content)
            self._fingerprint = found

    def _open(self, index: int, job: Job, state: Any) -> None:
        before = self._workers.get(index)
        worker = self._workers[index] = self._office.hire(index, before)
        self._tell(worker, job, state)
        worker.start()

    def _tell(self, worker: RemoteWorker, job: Job, state: Any) -> None:
        assert self._cargo is not None, "an iteration packs first"
        has_cargo = worker.digest != self._cargo.digest
        told = words.Begin(self._run, worker.worker_index, job, state, has_cargo)
        with users_modules_by_value() if state is not None else nullcontext():
            begin = wire.Begin(words=b"".join(words.begin_message(told)), run=self._run)
        if has_cargo:
            begin.payload, begin.payload_bytes = self._cargo.digest, len(self._cargo.content)
            worker.digest = self._cargo.digest
        worker.in_hand = {}
        worker.order(wire.Order(begin=begin), self._cargo if has_cargo else None)

    # -- receiving ----------------------------------------------------------------------------------------------------

    def _event_of(self, worker: RemoteWorker, news: News) -> Event | None:
        if isinstance(news, Gone):
            return Lost(worker.worker_index, worker.lose(news), news.is_fault)
        if isinstance(news, BaseException):
            worker.is_lost = True
            raise news
        answer = words.answer_of(news)
        if answer.run != self._run:
            return None
        keys = worker.in_hand.pop(answer.batch_index, None)
        if answer.kind is Kind.MADE:
            self._office.count(len(keys) if isinstance(keys, list) else 1)
        return words.event_of(answer, None, worker.worker_index, f"worker {worker.worker_index}")


def _has_users_code(keys: Any) -> bool:
    """Whether keys are of classes that the service's workers may not have; most keys are numbers."""
    if isinstance(keys, list | tuple):
        kinds = set(map(type, keys))
        if not kinds <= _PLAIN and any(map(_has_users_code, keys)):
            return True
    return is_users(sys.modules.get(type(keys).__module__))


def _state_for(index: int, job: Job) -> Any:
    return job.states[index] if job.states else None


def _apart(call: Callable[[], None]) -> None:
    """Call in a thread of its own, so that calls into gRPC do not keep Ctrl-C from the main thread."""
    results: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001  # it goes to whoever waits for the result
            results.put(error)
        else:
            results.put(None)

    threading.Thread(target=run, name="stoker-open", daemon=True).start()
    error = results.get()
    if error is not None:
        raise error
