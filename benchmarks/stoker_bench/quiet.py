"""Waiting until the machine is idle, so that one contender's left-over work does not slow the next."""

from __future__ import annotations

import os
import time
from pathlib import Path

_STAT = Path("/proc/stat")
_SAMPLE_S = 0.2


def wait(deadline_s: float = 20.0, busy_share: float = 0.15) -> None:
    """Return when less than ``busy_share`` of one core is used for 0.2 s, at the latest after ``deadline_s``.

    Where the system does not tell, a second is waited.
    """
    if not _STAT.exists():
        time.sleep(1.0)
        return
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        before = _busy_s()
        time.sleep(_SAMPLE_S)
        if (_busy_s() - before) / _SAMPLE_S < busy_share:
            return


def _busy_s() -> float:
    """Seconds of work on all cores since the system started: neither idle nor waiting nor taken by another machine."""
    user, nice, system = (int(number) for number in _STAT.read_text().split(maxsplit=4)[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")
