"""The program of a worker process: fetches batches of a torch dataset.

:func:`main` runs in a process that :mod:`stoker.processes` started; see :mod:`stoker.compat.wire` for what it is told.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
from collections import deque
from dataclasses import replace
from typing import Any, Final

import cloudpickle
import torch
import torch.utils.data
from torch.utils.data._utils import worker as torch_worker

from stoker.batch.pool import BufferPool
from stoker.compat import collate, seeds, wire
from stoker.compat.crew import Job, Task
from stoker.compat.fetch import EndOfDataError, Fetcher, fetcher_of
from stoker.compat.shortened import shortened
from stoker.compat.wire import Begin, Cargo, Kind
from stoker.memory.arena import Arena
from stoker.memory.malloc import keep_memory
from stoker.processes import failures
from stoker.processes.channel import Channel, ChannelClosedError, Message
from stoker.processes.objects import Encoder
from stoker.processes.payload import Opened, unpack

PROGRAM: Final = "stoker.compat.worker:main"
_MAX_IDLE_BYTES: Final = 1 << 30
_IDLE_SHARE: Final = 32

_LOG: Final = logging.getLogger("stoker")


def main(channel: Channel, inherited: Any) -> None:
    """Serve one trainer until it hangs up. ``inherited`` is a :class:`stoker.compat.wire.Cargo`, or None."""
    keep_memory()
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    arena = _arena_of(memory_bytes)
    pool = BufferPool(min(_MAX_IDLE_BYTES, memory_bytes // _IDLE_SHARE), *([arena.allocate] if arena else []))
    collate.install(pool)
    note_asking()
    worker = _Worker(channel, Encoder(pool, arena), inherited)
    with contextlib.suppress(ChannelClosedError):  # the trainer is gone, or needs this worker no more
        channel.send(wire.hello_message(), [arena.fd] if arena else [])
        worker.run()


def _arena_of(max_bytes: int) -> Arena | None:
    try:
        return Arena.create(max_bytes)
    except OSError as error:
        _LOG.info("no shared memory, batches go through the socket: %s", error)
        return None


class _Worker:
    """What is known in a worker process: its data, and what it was asked for."""

    def __init__(self, channel: Channel, encoder: Encoder, inherited: Cargo | None) -> None:
        self._channel = channel
        self._encoder = encoder
        self._inherited = inherited
        self._opened: Opened | None = None
        self._tasks: deque[Task] = deque()
        self._run = 0
        self._worker_index = 0
        self._job: Job | None = None  # with the cargo in use
        self._fetcher: Fetcher | None = None
        self._failure = b""  # why there is no fetcher

    def run(self) -> None:
        """Work until the trainer hangs up, which ends this with ChannelClosedError."""
        while True:
            message = self._channel.receive(0.0 if self._tasks else None)
            if message is not None:  # whatever came is looked at before the next task: it may be a new iteration
                self._take(message)
            elif self._tasks:
                self._do(self._tasks.popleft())

    def _take(self, message: Message) -> None:
        match wire.kind_of(message.body):
            case Kind.BEGIN:
                self._begin(wire.begin_of(message.body), message.fds)
            case Kind.TASK:
                order = wire.order_of(message.body)
                self._encoder.release(order.released)
                if order.run == self._run:
                    self._tasks.append(order.task)
            case Kind.RELEASE:
                self._encoder.release(wire.released_of(message.body))
            case Kind.WITHDRAW:
                run, batch_index = wire.withdrawn_of(message.body)
                if run == self._run:
                    self._tasks = deque(task for task in self._tasks if task.batch_index != batch_index)
            case kind:
                raise AssertionError(f"a worker is not sent {kind.name}")

    # -- an iteration --------------------------------------------------------------------------------------------------

    def _begin(self, begin: Begin, fds: tuple[int, ...]) -> None:
        self._tasks.clear()
        self._run, self._worker_index = begin.run, begin.worker_index
        self._fetcher, self._failure = None, b""
        try:
            if begin.has_cargo:
                self._open(fds)
            self._prepare(begin)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # users' code; told at the first task, as torch does
            self._failure = self._failure_of(error, "starting")

    def _open(self, fds: tuple[int, ...]) -> None:
        self._forget()
        self._opened = None
        try:
            self._opened = unpack(*fds)
        finally:
            for fd in fds:
                os.close(fd)

    def _prepare(self, begin: Begin) -> None:
        job = begin.job
        if job.goes_on and self._job is not None:
            kept = self._job
            self._job = job = replace(job, dataset=kept.dataset, collate_fn=kept.collate_fn)
        else:
            self._forget()
            torch.set_num_threads(1)
            if begin.settings is not None:
                begin.settings.put()
            job = wire.with_cargo(job, self._cargo())
            _start(job, self._worker_index)
            self._job = job
        self._fetcher = fetcher_of(job, job.dataset, job.collate_fn, pickle.loads(begin.state))

    def _forget(self) -> None:
        """The old data go before the new ones come."""
        self._job = torch_worker._worker_info = None

    def _cargo(self) -> Cargo:
        if self._inherited is not None:
            return self._inherited
        assert self._opened is not None, "the cargo comes with the first iteration"
        cargo: Cargo = self._opened.load()
        return cargo

    # -- a batch -------------------------------------------------------------------------------------------------------

    def _do(self, task: Task) -> None:
        kind, value, state = self._answer(task)
        asked = _Asking.was_heard
        self._channel.send(wire.answer_message(kind, self._run, task.batch_index, value, asked=asked, state=state))

    def _answer(self, task: Task) -> tuple[Kind, wire.Parts, bytes]:
        if self._fetcher is None or self._job is None:
            return Kind.FAILED, [self._failure], b""
        try:
            batch = self._fetcher.fetch(task)
            state = self._fetcher.state() if self._job.is_iterable and self._job.wants_state else None
            dumped_state = cloudpickle.dumps(state) if state is not None else b""
        except EndOfDataError:
            return Kind.ENDED, [], b""
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # users' code; only sys.exit() ends the process
            return Kind.FAILED, [self._failure_of(error, f"fetching batch {task.batch_index}")], b""
        try:
            return Kind.MADE, self._encoder.encode(batch), dumped_state
        except Exception as error:  # noqa: BLE001  # a user's __reduce__ may raise anything
            failures.add_note(
                error,
                f"batch {task.batch_index} (samples {shortened(task.keys)}), a {_type_name(batch)} as collate_fn "
                "returned it, cannot be sent to the trainer",
            )
            return Kind.FAILED, [self._failure_of(error, f"sending batch {task.batch_index}")], b""

    def _failure_of(self, error: BaseException, doing: str) -> bytes:
        return failures.failure_of(error, f"In worker {self._worker_index} (pid {os.getpid()}), while {doing}")


def _start(job: Job, worker_index: int) -> None:
    """What torch does in a new worker, in its order."""
    seed = seeds.seed_worker(job.base_seed, worker_index)
    _Asking.was_heard = False
    torch_worker._worker_info = torch_worker.WorkerInfo(
        id=worker_index, num_workers=job.num_workers, seed=seed, dataset=job.dataset
    )
    if job.worker_init_fn is not None:
        job.worker_init_fn(worker_index)


class _Asking:
    """Whether users' code has asked which worker it is in since the dataset came."""

    was_heard = False


def _ask() -> None:
    _Asking.was_heard = True


def note_asking() -> None:
    """Notice, in this process, calls of torch's ``get_worker_info``.

    The function gets other code instead of another function in its place: modules that a forked worker has inherited
    hold the function itself.
    """
    torch_worker.__dict__["_stoker_ask"] = _ask
    torch_worker.get_worker_info.__code__ = _get_worker_info.__code__


def _get_worker_info() -> Any:
    _stoker_ask()  # type: ignore[name-defined]  # noqa: F821  # both are names of torch's module
    return _worker_info  # type: ignore[name-defined]  # noqa: F821


def _type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
