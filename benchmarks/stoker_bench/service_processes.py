"""A dispatcher and workers as processes on loopback, started outside any clock."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from types import TracebackType
from typing import IO, Self

START_S = 60.0
END_S = 5.0
LOG_BYTES = 4000


class Process:
    """One Python module as a process that says in its first line on stdout how it is reached; ends with this one."""

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed in close()
        self._name = " ".join([module, *arguments[:1]])
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def first_line(self, timeout_s: float = START_S) -> str:
        """Wait for it. Raises RuntimeError with the end of stderr if it does not come."""
        out = self._process.stdout
        assert out is not None
        end_s = time.monotonic() + timeout_s
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, end_s - time.monotonic())):
                    break
                part = os.read(out.fileno(), 1)
                if not part:
                    break
                line += part
        if not line.endswith(b"\n"):
            raise RuntimeError(f"{self._name} did not say that it is ready ({timeout_s:g} s at most): {self._said()}")
        return line.decode().strip()

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End it: in good order, or after END_S in any case."""
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def _said(self) -> str:
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - LOG_BYTES))
        return self._log.read().decode(errors="replace").strip() or "nothing on stderr"


class Service:
    """A dispatcher and ``num_workers`` workers, as the command line starts them; all else by default.

    Each worker has ``num_threads`` decoding threads; ``worker_module`` takes what the command line takes, and is given
    ``worker_options`` too. Made in the main thread, since the processes end with the thread that made them.
    """

    def __init__(
        self,
        num_workers: int,
        num_threads: int,
        *,
        arena: bool = True,
        beat_s: float = 1.0,
        worker_module: str = "stoker_service",
        worker_options: Sequence[str] = (),
    ) -> None:
        self._worker_module = worker_module
        self._worker_options = [f"--threads={num_threads}", "--arena" if arena else "--no-arena", *worker_options]
        self._all: list[Process] = []
        self.workers: list[Process] = []
        self.url = ""
        try:
            self.url = self._start("stoker_service", "dispatcher", "--port=0", f"--beat-s={beat_s}")[1].split()[1]
            for _ in range(num_workers):
                self.start_worker()
        except BaseException:
            self.close()
            raise

    def start_worker(self) -> None:
        """Start one more worker; returns when it is ready."""
        options = [f"--dispatcher={self.url}", *self._worker_options]
        self.workers.append(self._start(self._worker_module, "worker", *options)[0])

    def kill_worker(self) -> None:
        """kill -9 of the worker that was started first."""
        self.workers.pop(0).kill()

    def close(self) -> None:
        """End all of it, the workers first."""
        while self._all:
            self._all.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, module: str, command: str, *options: str) -> tuple[Process, str]:
        process = Process(module, [command, *options, f"--parent-pid={os.getpid()}"])
        self._all.append(process)
        return process, process.first_line()
