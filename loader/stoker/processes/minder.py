"""The parent of worker processes: reports their ends, and does not let them outlive the trainer."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NoReturn

from stoker.processes import prctl, reports

_LEAVE_S: Final = 1.5
_LOOK_S: Final = 0.5  # where the trainer's end cannot be waited for


class Minder:
    """For a process of one thread, whose only children are workers and what these leave behind.

    It is told of the trainer's end by a descriptor of the process itself (pidfd): unlike the end of a socket, no copy
    in a forked process delays that. Its own end is the end of its children (``PR_SET_PDEATHSIG``).
    """

    def __init__(self, trainer_pid: int) -> None:
        self._trainer_pid = trainer_pid
        self._pid = os.getpid()
        self._workers: dict[int, socket.socket] = {}  # where to report each one's end
        self._wake, wake = socket.socketpair()
        self._wake.setblocking(False)
        wake.setblocking(False)
        self._wake_writer = wake
        # the trainer may live on after these, and takes its workers with it if it does not
        for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, _wake_up)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        prctl.adopt_orphans()
        self._trainer_fd = _pid_fd(trainer_pid)

    @property
    def fds(self) -> list[int]:
        """The descriptors that minding needs."""
        own = [self._wake.fileno(), self._wake_writer.fileno(), self._trainer_fd]
        return [fd for fd in [*own, *(report.fileno() for report in self._workers.values())] if fd >= 0]

    @property
    def has_workers(self) -> bool:
        """Whether any worker's end has not been reported yet."""
        return bool(self._workers)

    def fork(self, become: Callable[[], NoReturn], report: socket.socket) -> None:
        """Start a worker, which goes on in ``become``. ``report`` is the minder's from now on."""
        try:
            pid = _fork()
        except OSError as error:
            reason = "no more processes (`ulimit -u`, or the container's limit), or no memory"
            reports.failed(report, f"{error.strerror}: {reason}")
            report.close()
            return
        if pid == 0:
            report.close()
            self._turn_into_worker()
            become()
        self._workers[pid] = report
        reports.started(report, pid)

    def _turn_into_worker(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        prctl.die_with(self._pid)
        self._wake.close()
        self._wake_writer.close()
        if self._trainer_fd >= 0:
            os.close(self._trainer_fd)
        for report in self._workers.values():
            report.close()

    def wait(self, *fds: int) -> list[int]:
        """Wait until some of these can be read, or a worker's end was reported. Leaves when the trainer is gone."""
        poll = select.poll()
        for fd in (*fds, self._wake.fileno()):
            poll.register(fd, select.POLLIN)
        if self._trainer_fd >= 0:
            poll.register(self._trainer_fd, select.POLLIN)
        events = [fd for fd, _ in poll.poll(None if self._trainer_fd >= 0 else _LOOK_S * 1000)]
        if self._trainer_fd in events or os.getppid() != self._trainer_pid:
            self.leave()
        if self._wake.fileno() in events:
            self._reap()
        return [fd for fd in events if fd in fds]

    @contextmanager
    def looking_out(self) -> Iterator[None]:
        """For what takes long and is not :meth:`wait`: leaves all the same soon after the trainer is gone."""
        signal.signal(signal.SIGALRM, self._leave_if_alone)
        signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def _leave_if_alone(self, *_: object) -> None:
        if os.getppid() != self._trainer_pid:
            self.leave()

    def _reap(self) -> bool:
        """Report and forget the children that ended; False if there are none left."""
        with suppress(BlockingIOError):
            while self._wake.recv(4096):
                pass
        with suppress(ChildProcessError):
            while True:
                pid, wait_status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                report = self._workers.pop(pid, None)
                if report is not None:
                    reports.ended(report, wait_status)
                    report.close()
        return False

    def leave(self) -> NoReturn:
        """Kill all children, and what they leave behind, and exit."""
        deadline = time.monotonic() + _LEAVE_S
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        while True:
            for pid in _children() or self._workers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not self._reap() or time.monotonic() > deadline:
                os._exit(0)
            poll.poll(max(0.0, deadline - time.monotonic()) * 1000)


def _fork() -> int:
    with warnings.catch_warnings():
        # newer Pythons count threads of native libraries, which is right, but these know how to be forked
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _wake_up(*_: object) -> None:
    """Python writes to the wake-up descriptor only for signals that it handles."""


def _pid_fd(trainer_pid: int) -> int:
    """A descriptor that is readable when the trainer, this process's parent, has ended; -1 where there is no such."""
    try:
        return os.pidfd_open(trainer_pid)
    except ProcessLookupError:
        sys.exit(0)
    except OSError:  # an old system, or a sandbox
        return -1


def _children() -> list[int]:
    """The children of this process, ended ones too; none where the system does not tell."""
    try:
        listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(pid) for pid in listed.split()]
