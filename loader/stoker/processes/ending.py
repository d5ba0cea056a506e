"""How a process ended, in words."""

from __future__ import annotations

import os
import signal
from typing import Final

EXIT_DEVICE_LOST: Final = 70
"""What a process of ours exits with when it can use its GPU no more, though another process may."""

_HINTS: Final = {
    signal.SIGKILL: " (the out-of-memory killer sends it)",
    signal.SIGSEGV: " (a crash in native code; its trace is on the standard error output)",
    signal.SIGABRT: " (native code gave up; its trace is on the standard error output)",
    signal.SIGBUS: " (memory could not be had: a full file system or a file that shrank)",
    signal.SIGILL: " (native code that is not made for this processor)",
}


def words(wait_status: int, *, with_hint: bool = True) -> str:
    """What :func:`os.waitpid` told about a process that is gone, for people."""
    code = os.waitstatus_to_exitcode(wait_status)
    if code == EXIT_DEVICE_LOST:
        return f"exited with code {code} (its context on the GPU was broken; its log is on the standard error output)"
    if code >= 0:
        return f"exited with code {code}"
    number = -code
    try:
        name = signal.Signals(number).name
    except ValueError:  # a real-time one
        return f"was killed by signal {number}"
    return f"was killed by signal {name}{_HINTS.get(signal.Signals(number), '') if with_hint else ''}"
