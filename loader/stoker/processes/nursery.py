"""The trainer's side of the process that its workers are forked from."""

from __future__ import annotations

import fcntl
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from stoker import leaving
from stoker.errors import WorkerError
from stoker.processes import interpreter
from stoker.processes.channel import Channel, ChannelClosedError
from stoker.processes.request import Preload, Request, import_path

START_S: Final = 180.0
"""For a start, which may have to import torch from a slow network disk."""

_LEAVE_S: Final = 1.6
_EXIT_LOCK_S: Final = 0.2  # a daemon thread that waits for a start does not keep the interpreter
_MODULES: Final = ("numpy", "cloudpickle", "PIL.Image", "torch", "torch.utils.data", "torchvision")


class _Nursery:
    """A running nursery. Its workers end with it; it ends when its ``control`` is hung up, or this process is gone."""

    def __init__(self) -> None:
        here, there = Channel.pair()
        control_fd = boot_fd = -1
        try:
            # above 2, even if this process has closed its standard streams
            control_fd = fcntl.fcntl(there, fcntl.F_DUPFD_CLOEXEC, 3)
            argument = pickle.dumps((control_fd, os.getpid()))
            boot_fd = interpreter.boot_file(import_path(), "stoker.processes.nursery_main", argument)
            with _no_interrupt(), output_fds() as (out_fd, error_fd):
                self._popen = subprocess.Popen(
                    interpreter.command(boot_fd),
                    stdin=subprocess.DEVNULL,
                    stdout=out_fd,
                    stderr=error_fd,
                    pass_fds=(control_fd, boot_fd),
                    env=_environment(),
                )
        except BaseException:
            here.close()
            raise
        finally:
            there.close()
            for fd in (control_fd, boot_fd):
                if fd >= 0:
                    os.close(fd)
        self._control = here
        self._preloaded: set[str] = set()

    @property
    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def preload(self) -> None:
        """Have it import what this process has imported of the packages that a worker is likely to need."""
        modules = tuple(name for name in _MODULES if name in sys.modules and name not in self._preloaded)
        if modules:
            self._preloaded.update(modules)
            self._control.send([pickle.dumps(Preload(modules))])

    def ask(self, request: Request, fds: Sequence[int]) -> None:
        self._control.send([pickle.dumps(request)], fds)
        if not self._control.flush(START_S):
            raise WorkerError(f"the process that starts workers (pid {self._popen.pid}) does not answer")

    @property
    def pid(self) -> int:
        return self._popen.pid

    def close(self) -> None:
        """End it and its workers."""
        self._control.close()
        try:
            self._popen.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(_LEAVE_S)

    def forget(self) -> None:
        """In a forked child: it is the parent's, and not waited for here."""
        self._popen.returncode = 0


class _Home:
    """The nursery of this process, once there is one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.nursery: _Nursery | None = None
        self.is_closed = False


_home = _Home()


def ask(request: Request, fds: Sequence[int], *, preload: bool) -> None:
    """Ask for a worker; starts a nursery if there is none, or it died. From any thread.

    Raises WorkerError if there is none to be had.
    """
    with _locked() as home:
        for is_last in (False, True):
            nursery = _running(home)
            try:
                if preload:
                    nursery.preload()
                nursery.ask(request, fds)
                return
            except ChannelClosedError as error:
                nursery.close()
                if is_last:
                    raise WorkerError(f"the process that starts workers (pid {nursery.pid}) died") from error


def warm() -> None:
    """Start the nursery beforehand, without waiting for it. From any thread; raises nothing."""
    with suppress(ChannelClosedError, WorkerError), _locked() as home:  # whoever wants a worker is told
        _running(home).preload()


def _running(home: _Home) -> _Nursery:
    if home.is_closed:
        raise WorkerError("no worker can be started while the interpreter exits")
    if home.nursery is None or not home.nursery.is_alive:
        if home.nursery is not None:
            home.nursery.close()
        home.nursery = None
        try:
            home.nursery = _Nursery()
        except OSError as error:
            raise WorkerError(f"the process that starts workers could not be started: {error}") from error
    return home.nursery


@contextmanager
def _locked() -> Iterator[_Home]:
    home = _home
    if not home.lock.acquire(timeout=START_S):
        raise WorkerError("another thread has been starting a worker for too long")
    try:
        yield home
    finally:
        home.lock.release()


def _close_at_exit() -> None:
    home = _home
    home.is_closed = True
    is_locked = home.lock.acquire(timeout=_EXIT_LOCK_S)
    if home.nursery is not None:
        home.nursery.close()
    if is_locked:
        home.lock.release()


def _forget_parents() -> None:
    global _home  # noqa: PLW0603  # the parent's may be locked by a thread that this process does not have
    if _home.nursery is not None:
        _home.nursery.forget()
    _home = _Home()


leaving.at_last(_close_at_exit)
os.register_at_fork(after_in_child=_forget_parents)


@contextmanager
def output_fds() -> Iterator[tuple[int, int]]:
    """Copies of this process's standard output and error output; the null device for one that is closed."""
    fds: list[int] = []
    try:
        for fd in (1, 2):
            try:
                fds.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3))
            except OSError:
                null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
                fds.append(fcntl.fcntl(null, fcntl.F_DUPFD_CLOEXEC, 3))
                os.close(null)
        yield fds[0], fds[1]
    finally:
        for fd in fds:
            os.close(fd)


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Block Ctrl-C in this thread: a process started meanwhile would be interrupted before it ignores it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _environment() -> dict[bytes, bytes]:
    """A pool of threads in the nursery would not survive the fork; one in each worker would be too many."""
    return {b"OPENBLAS_NUM_THREADS": b"1", **os.environb}
