"""Life of a process of the service: start, signals, end.

The main thread does nothing but wait for what happens: a signal, or one of the threads here that tells it something.
So a signal is answered at once, whatever the server is busy with, and no code of ours runs inside a signal handler.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Protocol, Self

from stoker.errors import SpecError, StokerError

LOG_VARIABLE = "STOKER_LOG"

EXIT_GOOD = 0
EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_JOB_LOST = 3
EXIT_INTERRUPTED = 130

# What a server may take to stop at once, its thread to notice, and the interpreter to end after that: 3 s.
STOP_S = 2.0
NOTICE_S = 0.2
LEAVE_S = 0.8

_PR_SET_PDEATHSIG = 1


class Served(Protocol):
    """A server of ours, as its process sees it. All but ``start`` may be called from any thread."""

    def start(self) -> None:
        """Listen; returns when the server can be reached. Raises StokerError if it cannot."""

    def wait(self) -> int:
        """Return the exit code, once the server has ended by itself or by what the others asked."""

    def drain(self) -> None:
        """Begin to end in good order; returns at once."""

    def stop(self) -> None:
        """End now; within STOP_S."""


class Signals:
    """Signals of this process, and words from its other threads, for the main thread to wait for.

    SIGHUP counts as SIGTERM, unless it was ignored at the start (``nohup``). The handlers that were there come back at
    the end. The interpreter's own handler writes the number of a signal into a pipe, at whatever point the main thread
    is; Python's, which does nothing, only keeps the default from ending the process.
    """

    def __init__(self, *more: signal.Signals) -> None:
        self._wanted = [signal.SIGTERM, signal.SIGINT, *more]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            self._wanted.append(signal.SIGHUP)
        self._before: dict[signal.Signals, Any] = {}
        self._before_fd = -1
        self._told: deque[object] = deque()
        self._reading, self._writing = -1, -1
        self._lock = threading.Lock()  # held while writing: else a number of a closed pipe may be another's by now

    def __enter__(self) -> Self:
        self._reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before_fd = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in self._wanted:
            self._before[number] = signal.signal(number, _ignored)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._before_fd)
        os.close(self._reading)
        with self._lock:
            os.close(self._writing)
            self._writing = -1

    def fileno(self) -> int:
        """Readable when :meth:`take` has something."""
        return self._reading

    def tell(self, word: object) -> None:
        """Wake the main thread with a word; from any thread."""
        self._told.append(word)
        with self._lock, contextlib.suppress(OSError):  # full: it is awake already; closed: nobody listens any more
            os.write(self._writing, b"\0")

    def wait(self, timeout_s: float | None = None) -> list[object]:
        """Wait until something is there or the time is over, then take it."""
        select.select([self], [], [], timeout_s)
        return self.take()

    def take(self) -> list[object]:
        """Return the words, then the signals that came (SIGHUP as SIGTERM); none if there is nothing."""
        numbers = b""
        with contextlib.suppress(BlockingIOError):
            numbers = os.read(self._reading, 4096)
        found: list[object] = []
        while self._told:
            found.append(self._told.popleft())
        return found + [_meaning(number) for number in numbers if number]


def serve(server: Served, on_ready: Callable[[], None]) -> int:
    """Run a server until it ends; return the exit code.

    The first SIGTERM drains it, the second, or one before it is ready, stops it at once; all give 0, as the end was
    asked for. SIGINT stops it at once and gives 130.

    ``on_ready`` is called once it can be reached. Raises what ``start`` and ``on_ready`` raise.
    """
    with Signals() as signals:
        runner = threading.Thread(target=_run, args=(server, on_ready, signals), name="stoker-run", daemon=True)
        runner.start()
        code = _until_ended(server, signals)
        runner.join(NOTICE_S)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # nothing is left to be asked for, and the exit code is known
    leave_within(LEAVE_S, code)
    return code


def begin(name: str, parent_pid: int | None = None) -> None:
    """Set up a process of ours, first thing: its log, and whose end is also its own."""
    if parent_pid is not None:
        end_with_parent(parent_pid)
    log_to_stderr(name)
    # gRPC's own lines say again, and in C++'s words, what our errors say. It reads this when it is first imported.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def say(line: str) -> None:
    """Print one of the lines by which a process tells who started it where it can be reached."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def log_to_stderr(name: str) -> None:
    """Have this process, which is ours, write its log to stderr; ``STOKER_LOG`` says from which level on."""
    level = os.environ.get(LOG_VARIABLE, "info").upper()
    if level not in {"DEBUG", "INFO", "WARNING", "ERROR"}:
        raise SpecError(f"{LOG_VARIABLE}={level.lower()!r}: expected debug, info, warning or error")
    logging.basicConfig(format=f"%(asctime)s {name}[%(process)d] %(levelname)s: %(message)s", level=logging.WARNING)
    logging.getLogger("stoker").setLevel(level)


def leave_within(seconds: float, code: int) -> None:
    """End the process with ``code``, should the interpreter not have ended by itself by then.

    Whatever thread of a library or of a user's function still runs must not keep a machine.
    """

    def leave() -> None:
        time.sleep(seconds)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    threading.Thread(target=leave, name="stoker-leave", daemon=True).start()


def end_with_parent(parent_pid: int) -> None:
    """Have the system kill this process when the process that started it is gone, however it went. Linux only.

    To be called first thing. Strictly, the kernel watches the *thread* that started us, which is the parent's main one.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:  # it was gone before the kernel knew of us
        raise StokerError(f"process {parent_pid}, which started this one, is gone")


@dataclass(frozen=True, slots=True)
class _Ready:
    """The server can be reached."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """The server has ended by itself or as it was asked."""

    code: int


def _run(server: Served, on_ready: Callable[[], None], signals: Signals) -> None:
    try:
        server.start()
        signals.tell(_Ready())  # before others learn of it: their SIGTERM, however soon, is to drain it
        on_ready()
        signals.tell(_Ended(server.wait()))
    except BaseException as error:  # noqa: BLE001 - the outermost place of this thread: the main thread raises it
        signals.tell(error)


def _until_ended(server: Served, signals: Signals) -> int:
    """Wait for the server's end, or stop it; return the exit code. Raises its error."""
    is_ready = is_draining = False
    while True:
        for word in signals.wait():
            if isinstance(word, BaseException):
                raise word
            if isinstance(word, _Ended):
                return word.code
            if isinstance(word, _Ready):
                is_ready = True
            elif word is signal.SIGTERM and is_ready and not is_draining:
                is_draining = True
                _aside(server.drain)
            else:
                _aside(server.stop).join(STOP_S)
                return EXIT_INTERRUPTED if word is signal.SIGINT else EXIT_GOOD


def _aside(call: Callable[[], None]) -> threading.Thread:
    """Call it in a thread, so that this one goes on listening to signals."""
    thread = threading.Thread(target=call, name="stoker-stop", daemon=True)
    thread.start()
    return thread


def _ignored(number: int, frame: FrameType | None) -> None:
    """What Python does on a signal: nothing. The pipe tells the main thread."""


def _meaning(number: int) -> signal.Signals:
    return signal.SIGTERM if number == signal.SIGHUP else signal.Signals(number)
