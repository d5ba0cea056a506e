"""The life of a worker process, from its start to its exit."""

from __future__ import annotations

import faulthandler
import importlib
import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NoReturn

from stoker.processes import prctl, reports
from stoker.processes.channel import Channel
from stoker.processes.request import Request

STACK_SIGNAL: Final = signal.SIGRTMIN + 7
"""A worker writes its stack when it gets this; no SIGUSR, which users' code and job schedulers use."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Descriptors that a worker is born with: its channel, where it reports, where its stack goes."""

    channel: int
    report: int
    stack: int


def surroundings_of(request: Request, folder_fd: int, out_fd: int, error_fd: int) -> None:
    """Take over folder and output of the trainer at launch; closes the descriptors."""
    os.fchdir(folder_fd)  # by descriptor: it may have no name any more
    os.dup2(out_fd, 1)
    os.dup2(error_fd, 2)
    for fd in (folder_fd, out_fd, error_fd):
        os.close(fd)
    os.environ.clear()
    os.environb.update(request.environment)
    time.tzset()
    sys.path[:] = request.path
    for entry in [entry for entry in sys.path_importer_cache if not Path(entry).is_absolute()]:
        del sys.path_importer_cache[entry]  # it was relative to another folder
    sys.argv[:] = request.argv
    # an empty one: what the user defined in theirs comes by value
    sys.modules["__main__"] = ModuleType("__main__")


def main(argument: bytes) -> NoReturn:
    """A fresh interpreter becomes a worker; its environment, folder and output are right from the start."""
    request, ends = pickle.loads(argument)
    sys.argv[:] = request.argv
    sys.modules["__main__"] = ModuleType("__main__")
    for fd in (ends.channel, ends.report, ends.stack):
        os.set_inheritable(fd, False)
    run(request.program, request.name, ends)


def run(program: str, name: str, ends: Ends, inherited: Any = None) -> NoReturn:
    """Import the program, report, call its function, exit."""
    report = socket.socket(fileno=ends.report)
    code = 1
    try:
        function = _prepare(program, name, ends)
        channel = Channel(socket.socket(fileno=ends.channel))
        reports.ready(report)
    except BaseException as error:  # noqa: BLE001  # the outermost place: all of it is the trainer's to know
        fail(report, error)
    report.close()
    try:
        function(channel, inherited)
        code = 0
    except SystemExit as ending:
        code = _code_of(ending)
    except BaseException:  # noqa: BLE001  # the outermost place
        traceback.print_exc()
    finally:
        # no exit handlers: those of the process that was forked are not this one's
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(code)


def fail(report: socket.socket, error: BaseException) -> NoReturn:
    """Exit, since the worker could not become one."""
    reports.failed(report, "".join(traceback.format_exception(error)))
    os._exit(1)


def _prepare(program: str, name: str, ends: Ends) -> Callable[[Channel, Any], object]:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the trainer's, which ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    threading.current_thread().name = name
    prctl.set_name(name)
    faulthandler.enable(2)
    faulthandler.register(STACK_SIGNAL, file=ends.stack, all_threads=True)
    module_name, _, function_name = program.partition(":")
    module = importlib.import_module(module_name)
    if "numpy" in sys.modules:  # or all forks of one process would draw the same numbers
        sys.modules["numpy"].random.seed()
    function: Callable[[Channel, Any], object] = getattr(module, function_name)
    return function


def _code_of(ending: SystemExit) -> int:
    """What the interpreter makes of ``sys.exit(value)``."""
    if ending.code is None:
        return 0
    if isinstance(ending.code, int):
        return ending.code & 0xFF
    sys.stderr.write(f"{ending.code}\n")
    return 1
