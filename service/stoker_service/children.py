"""A child process of ``stoker up``."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

MAX_LINE_BYTES = 64 << 10

_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 15.0
_STEADY_S = 30.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a child that ended waits to be started again.

    Not at all after its first end and after a life of 30 s, as then a short gap matters most; else half a second, and
    twice as long each time, up to 15 s, as then something is wrong that a restart does not mend.
    """

    num_short_lives: int = 0

    def after(self, lived_s: float) -> Backoff:
        """Return the back-off after a child ended that had lived so long."""
        return Backoff(0 if lived_s >= _STEADY_S else self.num_short_lives + 1)

    @property
    def delay_s(self) -> float:
        """Seconds to wait."""
        if self.num_short_lives < 2:
            return 0.0
        return float(min(_FIRST_DELAY_S * 2.0 ** (self.num_short_lives - 2), _LONGEST_DELAY_S))


class Child:
    """One command of ours as a process, which ends with this one. To be made in the main thread.

    It has a process group of its own, so that Ctrl-C in the terminal reaches this process alone, and its stderr is this
    one's.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        command = [sys.executable, "-m", "stoker_service", *arguments, f"--parent-pid={os.getpid()}"]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, process_group=0)
        assert self._process.stdout is not None
        self._out = self._process.stdout
        os.set_blocking(self._out.fileno(), False)
        self._rest = b""
        self.is_silent = False  # whether its output has ended

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def fileno(self) -> int:
        """Readable when :meth:`lines` has something, and at the end of its output."""
        return self._out.fileno()

    def lines(self) -> list[str]:
        """Return the lines that it has printed since."""
        try:
            read = os.read(self._out.fileno(), MAX_LINE_BYTES)
        except BlockingIOError:
            return []
        self.is_silent = not read
        *lines, self._rest = (self._rest + read).split(b"\n")
        self._rest = self._rest[-MAX_LINE_BYTES:]
        return [line.decode(errors="replace") for line in lines]

    def poll(self) -> int | None:
        """Return its exit code, or the negative number of the signal that ended it; None while it lives."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it still lives."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def close(self) -> None:
        """Forget its output, which may be held open by what it started itself."""
        self._out.close()
