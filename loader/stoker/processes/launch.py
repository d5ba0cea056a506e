"""Starting worker processes."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Literal, TypeAlias, assert_never

from stoker.errors import WorkerError
from stoker.processes import forked, forks, nursery, reports
from stoker.processes.channel import Channel
from stoker.processes.child import Ends
from stoker.processes.reports import Reports
from stoker.processes.request import Request
from stoker.processes.worker_process import WorkerProcess

StartMethod: TypeAlias = Literal["forkserver", "spawn", "fork"]

__all__ = ["StartMethod", "WorkerProcess", "close_all", "launch", "launch_all", "warm"]


def launch(program: str, name: str, *, method: StartMethod = "forkserver", inherited: Any = None) -> WorkerProcess:
    """Start a worker that runs ``program``, ``"package.module:function"``, called as ``function(channel, inherited)``.

    From any thread. Returns when the program is imported. ``inherited`` comes only with the method ``"fork"``. Raises
    WorkerError if there is no worker to be had; the text has what the worker said.
    """
    return launch_all(program, [name], method=method, inherited=inherited)[0]


def launch_all(
    program: str, names: Sequence[str], *, method: StartMethod = "forkserver", inherited: Any = None
) -> list[WorkerProcess]:
    """Start several at once, which is faster than one after another; if one fails, the others are closed."""
    if inherited is not None and method != "fork":
        raise ValueError(f"only a fork inherits objects, not a worker of the start method {method!r}")
    deadline = time.monotonic() + nursery.START_S
    workers: list[WorkerProcess] = []
    try:
        for name in names:
            workers.append(_begin(program, name, method, inherited))  # noqa: PERF401  # those before an error count
        for index, worker in enumerate(workers):
            worker.await_start(deadline)
            if worker.is_unborn and method != "fork":  # the nursery died with the request; a new one gets it
                worker.close(0.0)
                workers[index] = _begin(program, worker.name, method, inherited)
                workers[index].await_start(deadline)
            workers[index].check_start()
    except OSError as error:
        close_all(workers, 0.0)
        raise WorkerError(f"a worker could not be started: {error}") from error
    except BaseException:
        close_all(workers, 0.0)
        raise
    return workers


def close_all(workers: Sequence[WorkerProcess], deadline_s: float) -> None:
    """Close several: all hang up first, so that they leave at the same time."""
    for worker in workers:
        worker.channel.close()
    for worker in workers:
        worker.close(deadline_s)


def warm() -> None:
    """Start the process that workers are forked from beforehand, without waiting for it. From any thread."""
    nursery.warm()


def _begin(program: str, name: str, method: StartMethod, inherited: Any) -> WorkerProcess:
    """Start a worker without waiting for it."""
    with ExitStack() as ours, ExitStack() as theirs:
        channel, there = Channel.pair()
        ours.callback(channel.close)
        theirs.callback(there.close)
        here, report = reports.pair()
        ours.callback(here.close)
        theirs.callback(report.close)
        stack_fd, stack_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        theirs.callback(os.close, stack_writer)
        worker = WorkerProcess(name, channel, Reports(here, stack_fd))
        ours.callback(worker.close, 0.0)
        ends = Ends(there.fileno(), report.fileno(), stack_writer)
        match method:
            case "fork":
                worker.minder_pid = forked.fork(program, name, ends, inherited)
            case "forkserver" | "spawn":
                for each in (there, report):
                    forks.close_in_child(each)  # or a fork of another thread's keeps it open
                _ask(Request.here(program, name, is_fresh=method == "spawn"), ends)
            case _:
                assert_never(method)
        ours.pop_all()
    return worker


def _ask(request: Request, ends: Ends) -> None:
    """Have the nursery start a worker, in the folder and with the output that this process has now."""
    folder_fd = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with nursery.output_fds() as (out_fd, error_fd):
            fds = [ends.channel, ends.report, ends.stack, folder_fd, out_fd, error_fd]
            nursery.ask(request, fds, preload=not request.is_fresh)
    finally:
        os.close(folder_fd)
