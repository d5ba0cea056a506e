"""Commands of ours as real processes: what they print, how they end."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

READY_S = 60.0  # these machines are shared: a start that takes long is no failure
ROOTS = tuple(str(Path(__file__).parents[2] / root) for root in ("loader", "service", "proto", "benchmarks"))


class Command:
    """A running process; its lines come with a deadline. To be made by :func:`command` or :func:`stoker`."""

    def __init__(self, arguments: Sequence[str], environment: dict[str, str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in end()
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(ROOTS),
            **environment,
        }
        self.process = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._errors, env=variables
        )
        assert self.process.stdout is not None
        self._out = self.process.stdout
        self._read = b""
        self.errors = ""

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self, timeout_s: float = READY_S) -> str:
        """Return the next line of its output; AssertionError with its errors if it ends or the time is over."""
        until_s = time.monotonic() + timeout_s
        while b"\n" not in self._read:
            left_s = until_s - time.monotonic()
            ready, _, _ = select.select([self._out], [], [], max(0.0, left_s))
            read = os.read(self._out.fileno(), 65536) if ready else b""
            assert read, f"no line within {timeout_s:g} s or no more lines; stderr:\n{self.stderr()}"
            self._read += read
        line, self._read = self._read.split(b"\n", 1)
        return line.decode()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, timeout_s: float = 30.0) -> int:
        """Wait for its end; return its exit code."""
        return self.process.wait(timeout_s)

    def stderr(self) -> str:
        """Return all it has written there so far."""
        if not self._errors.closed:
            self._errors.seek(0)
            self.errors = self._errors.read().decode(errors="replace")
        return self.errors

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30.0)
        self._out.close()
        self.stderr()
        self._errors.close()


@contextmanager
def command(*arguments: str, **environment: str) -> Iterator[Command]:
    """Run a program in this interpreter's environment; it is killed at the end at the latest."""
    running = Command(arguments, environment)
    try:
        yield running
    finally:
        running.end()


@contextmanager
def stoker(*arguments: str, **environment: str) -> Iterator[Command]:
    """Run ``stoker`` with these arguments; killed at the end at the latest."""
    with command(sys.executable, "-m", "stoker_service", *arguments, **environment) as running:
        yield running


def children_of(pid: int) -> list[int]:
    """Return the ids of a process's children that are there, zombies left out."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [child for child in map(int, listed) if is_there(child)]


def is_there(pid: int) -> bool:
    """Whether a process of this id lives; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def wait_gone(pids: Sequence[int], timeout_s: float) -> list[int]:
    """Wait until all of these processes are gone; return those that are still there when the time is over."""
    until_s = time.monotonic() + timeout_s
    descriptors: dict[int, int] = {}
    for pid in pids:
        try:
            descriptors[pid] = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
    try:
        for pid, descriptor in descriptors.items():
            ready, _, _ = select.select([descriptor], [], [], max(0.0, until_s - time.monotonic()))
            if not ready and is_there(pid):
                return [one for one in pids if is_there(one)]
    finally:
        for descriptor in descriptors.values():
            os.close(descriptor)
    return []
