"""Workers that are forks of the trainer itself."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from stoker.processes import child
from stoker.processes.child import Ends
from stoker.processes.minder import Minder


def fork(program: str, name: str, ends: Ends, inherited: Any) -> int:
    """Fork a minder of one worker, which forks the worker; returns the minder's pid, to be waited for by the caller.

    Two forks, since only a process of one thread can have its children die with it. Raises OSError.
    """
    trainer_pid = os.getpid()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()  # or the worker would write it again
    pid = os.fork()
    if pid == 0:
        _mind(trainer_pid, program, name, ends, inherited)
    return pid


def _mind(trainer_pid: int, program: str, name: str, ends: Ends, inherited: Any) -> NoReturn:
    try:
        gc.disable()  # finalizers of the trainer's objects are the trainer's to run
        minder = Minder(trainer_pid)
        report = socket.socket(fileno=os.dup(ends.report))
        minder.fork(partial(_become, program, name, ends, inherited), report)
        _ignore_what_the_trainer_handles()
        _close_all_but(minder.fds)
        while minder.has_workers:
            minder.wait()
    finally:
        os._exit(0)


def _become(program: str, name: str, ends: Ends, inherited: Any) -> NoReturn:
    gc.enable()
    if os.isatty(0):  # the terminal's input is the trainer's
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
    child.run(program, name, ends, inherited)


def _ignore_what_the_trainer_handles() -> None:
    """Never run a function of the trainer's in a process that it does not know of."""
    for number in signal.valid_signals() - {signal.SIGCHLD}:
        if callable(signal.getsignal(number)) and number != signal.SIGINT:
            signal.signal(number, signal.SIG_IGN)


def _close_all_but(fds: list[int]) -> None:
    """Close the trainer's files and connections, whose ends would not be seen as long as this process has them."""
    with suppress(OSError):  # no /proc
        for entry in list(Path("/proc/self/fd").iterdir()):
            if int(entry.name) not in fds:
                with suppress(OSError):  # the listing's own
                    os.close(int(entry.name))
