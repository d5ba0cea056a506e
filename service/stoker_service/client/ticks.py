"""The clock of those who watch whether others are heard."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator


def ticks(tick_s: float, stop: queue.SimpleQueue[None]) -> Iterator[float]:
    """Give, every ``tick_s``, for how many seconds others could be heard since the last time; until told to stop.

    A process that was stopped, or that could not run Python for long, has not listened meanwhile.
    """
    before_s = time.monotonic()
    while True:
        try:
            stop.get(timeout=tick_s)
        except queue.Empty:
            pass
        else:
            return
        now_s = time.monotonic()
        yield min(now_s - before_s, 1.5 * tick_s)
        before_s = now_s
