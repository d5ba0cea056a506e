"""The process from which a trainer's workers are forked."""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import socket
import sys
from functools import partial
from typing import Final, NoReturn

from stoker.processes import child, interpreter, prctl
from stoker.processes.channel import Channel, ChannelClosedError, Message
from stoker.processes.child import Ends
from stoker.processes.minder import Minder
from stoker.processes.request import Preload, Request

_OURS: Final = frozenset(["stoker", "stoker_service"])  # importing them starts no thread


def main(argument: bytes) -> NoReturn:
    """Serve requests until the trainer hangs up or is gone. Called in a fresh interpreter of one thread."""
    control_fd, trainer_pid = pickle.loads(argument)
    os.set_inheritable(control_fd, False)
    prctl.set_name("stoker-nursery")
    minder = Minder(trainer_pid)
    control = Channel(socket.socket(fileno=control_fd))
    try:
        while True:
            message = control.receive(0)
            if message is None:
                minder.wait(control.fileno())
            else:
                _serve(minder, message)
    except ChannelClosedError:
        minder.leave()


def _serve(minder: Minder, message: Message) -> None:
    wanted = pickle.loads(message.body)
    if isinstance(wanted, Preload):
        for module in wanted.modules:
            _import(minder, module)
    else:
        channel, report_fd, stack, *surroundings = message.fds
        ends = Ends(channel, report_fd, stack)
        if not wanted.is_fresh and wanted.module.partition(".")[0] in _OURS:
            _import(minder, wanted.module)
        report = socket.socket(fileno=os.dup(report_fd))
        minder.fork(partial(_become, wanted, ends, surroundings), report)
        for fd in message.fds:
            os.close(fd)


def _import(minder: Minder, module: str) -> None:
    """Import for all later children; if it fails, each that needs it meets the same error, and reports it."""
    if module in sys.modules:
        return
    try:
        with minder.looking_out():
            importlib.import_module(module)
    except Exception:  # noqa: BLE001  # whatever a package's import does must not end the nursery
        return
    gc.collect()
    gc.freeze()  # or the first collection of each child would copy every page


def _become(request: Request, ends: Ends, surroundings: list[int]) -> NoReturn:
    """A fork of the nursery becomes a worker."""
    try:
        child.surroundings_of(request, *surroundings)
        if request.is_fresh:
            _replace(request, ends)
    except BaseException as error:  # noqa: BLE001  # the outermost place
        child.fail(socket.socket(fileno=ends.report), error)
    child.run(request.program, request.name, ends)


def _replace(request: Request, ends: Ends) -> NoReturn:
    """Put a fresh interpreter in this process's place."""
    boot_fd = interpreter.boot_file(request.path, child.__name__, pickle.dumps((request, ends)))
    for fd in (boot_fd, ends.channel, ends.report, ends.stack):
        os.set_inheritable(fd, True)
    arguments = interpreter.command(boot_fd)
    os.execve(arguments[0], arguments, request.environment)
