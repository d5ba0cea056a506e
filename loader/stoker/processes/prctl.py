"""What Linux lets a process ask for itself."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Final

_SET_PDEATHSIG: Final = 1
_SET_NAME: Final = 15
_SET_CHILD_SUBREAPER: Final = 36
_MAX_NAME_BYTES: Final = 15

_libc: Final = ctypes.CDLL(None, use_errno=True)


def die_with(parent_pid: int) -> None:
    """Have this process killed when its parent ends, at once if that has happened; lasts through an exec.

    The system looks at the *thread* that forked: the parent must be a process of one thread.
    """
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


def set_name(name: str) -> None:
    """Name this thread, as tools (ps, top, py-spy) show it."""
    buffer = ctypes.create_string_buffer(name.encode(errors="replace")[:_MAX_NAME_BYTES])
    _prctl(_SET_NAME, ctypes.addressof(buffer))


def adopt_orphans() -> None:
    """Become the parent of grandchildren whose own parent ends."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl {option}: {os.strerror(code)}")
