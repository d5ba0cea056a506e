"""The trainer's side of one worker process."""

from __future__ import annotations

import os
import re
import select
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from stoker.errors import WorkerError
from stoker.processes import ending, forks
from stoker.processes.channel import Channel
from stoker.processes.child import STACK_SIGNAL
from stoker.processes.reports import Reports

_KILL_S: Final = 1.0  # from the signal to the end; longer only in the middle of a call that the system cannot break off
_QUIET_S: Final = 0.02  # after which a stack is taken to be wholly written
_MAX_STACK_BYTES: Final = 1 << 20
_OURS: Final = re.compile(r'stoker/processes/child\.py", line \d+ in run$')
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class WorkerProcess:
    """A process that runs a program at the other end of ``channel``. For one thread at a time; see :func:`launch`.

    Only the process that launched it can use it, not a fork of that.
    """

    def __init__(self, name: str, channel: Channel, reports: Reports) -> None:
        self.name = name
        self.channel = channel
        self.minder_pid: int | None = None  # with the method "fork": a child of ours, to be waited for
        self._reports = reports
        self._is_killed = False
        self._ending: str | None = None

    @property
    def pid(self) -> int:
        """Its process; 0 if there never was one."""
        return self._reports.pid or 0

    def await_start(self, deadline_s: float) -> None:
        """Wait until it runs its program, or never will. Raises WorkerError if that is not known in time."""
        reports = self._reports
        # who forked it says that it started, and it itself that it is ready: the two may come in either order
        while not (reports.is_ready and reports.pid) and reports.failure is None and not reports.is_over:
            if not reports.read(deadline_s - time.monotonic()):
                raise WorkerError(f"{self._who()} did not start in time" + ", and is stopped" * self.is_stopped())

    @property
    def is_unborn(self) -> bool:
        """Whether whoever was to fork it ended before."""
        return self._reports.is_over and not self.pid and self._reports.failure is None

    def check_start(self) -> None:
        """Raise WorkerError, with what it said, if it does not run its program."""
        if self.is_unborn:
            raise WorkerError(
                f"{self._who()} could not be started: the process that starts workers ended before it could; its "
                "standard error output, which is this process's, may say why"
            )
        if not self._reports.is_ready:
            ended = self.ending(_KILL_S) or "it does not answer"
            raise WorkerError(f"{self._who()} could not be started: {self._reports.failure or ended}")

    def ending(self, timeout_s: float = 0.0) -> str | None:
        """How it ended, for people; None if it has not in time. ``"exited with code 3"``."""
        self._check()
        deadline = time.monotonic() + timeout_s
        while self._ending is None:
            if self._reports.is_over:
                self._ending = self._words()
                self._wait_for_minder()
            elif not self._reports.read(max(0.0, deadline - time.monotonic())):
                return None
        return self._ending

    def _words(self) -> str:
        if self._reports.wait_status is None:
            return "was killed, since the process that started it ended"
        return ending.words(self._reports.wait_status, with_hint=not self._is_killed)

    def kill(self) -> None:
        """Kill it, without waiting; nothing if it has ended."""
        self._check()
        self._is_killed = True
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        reports = self._reports
        while not reports.is_over and reports.read(0.0):
            pass
        with suppress(ProcessLookupError):
            if reports.pid_fd >= 0:
                signal.pidfd_send_signal(reports.pid_fd, number)
            elif reports.pid and not reports.is_over:
                os.kill(reports.pid, number)

    def cpu_s(self) -> float | None:
        """Processor time that it has used so far; None if it has ended or the system does not tell."""
        fields = self._stat()
        return None if fields is None else (int(fields[11]) + int(fields[12])) / _TICKS

    def is_stopped(self) -> bool:
        """Whether it is stopped, by a signal or a debugger."""
        fields = self._stat()
        return fields is not None and fields[0] in "Tt"

    def _stat(self) -> list[str] | None:
        """The fields of /proc/<pid>/stat from the state on."""
        if self._ending is not None or not self.pid:
            return None
        try:
            text = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        return text.rpartition(")")[2].split()

    def stack(self, timeout_s: float = 0.5) -> str | None:
        """Where the Python code of all its threads is; None if it does not answer in time.

        It answers in the middle of native code too, but not when it is stopped or waits for a disk.
        """
        self._check()
        fd = self._reports.stack_fd
        if fd < 0 or self.ending() is not None:
            return None
        _read(fd)  # of an earlier call that did not wait long enough
        self._signal(STACK_SIGNAL)
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        text = b""
        wait_s = timeout_s
        while poll.poll(wait_s * 1000):
            more = _read(fd)
            if not more:  # it ended
                break
            text += more
            wait_s = _QUIET_S
        return _without_ours(text.decode(errors="replace")) or None

    def close(self, deadline_s: float) -> None:
        """Hang up, wait until the deadline (of the monotonic clock) for its end, then kill it. Harmless again."""
        self.channel.close()
        if not forks.is_own(self._reports) or self._reports.stack_fd < 0:
            return
        if self.ending(max(0.0, deadline_s - time.monotonic())) is None:
            self.kill()
            self.ending(_KILL_S)
        self._reports.close()

    def _wait_for_minder(self) -> None:
        if self.minder_pid is not None:
            with suppress(ChildProcessError):  # the user's code waited for any child
                os.waitpid(self.minder_pid, 0)
            self.minder_pid = None

    def _check(self) -> None:
        if not forks.is_own(self._reports):
            raise WorkerError(f"{self._who()} belongs to the process that this one was forked from")

    def _who(self) -> str:
        return f"worker {self.name!r}" + (f" (pid {self.pid})" if self.pid else "")


def _without_ours(stack: str) -> str:
    """Leave out the frames that called the program, and those before."""
    lines: list[str] = []
    is_ours = False
    for line in stack.strip().splitlines():
        is_ours = line.startswith("  File") and (is_ours or _OURS.search(line) is not None)
        if not is_ours:
            lines.append(line)
    return "\n".join(lines)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _MAX_STACK_BYTES)
    except BlockingIOError:
        return b""
