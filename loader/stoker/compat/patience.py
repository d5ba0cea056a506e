"""How long a batch may take, and what is said meanwhile."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from stoker.errors import WorkerStallError

FIRST_WORD_S: Final = 10.0
IDLE_S: Final = 300.0
LONGEST_S: Final = 3600.0

_LOG: Final = logging.getLogger("stoker")


class Patience:
    """One wait for a batch.

    With a time-out, that is the deadline. Without one, a worker that uses the processor may take :data:`LONGEST_S`,
    since torch would wait for ever; one that does not is given up after :data:`IDLE_S`. After :data:`FIRST_WORD_S`, and
    each time twice that has passed, a line in the log says what is waited for.
    """

    def __init__(self, timeout_s: float, is_active: Callable[[], bool], waits_for: Callable[[], str]) -> None:
        self._timeout_s = timeout_s
        self._is_active = is_active
        self._waits_for = waits_for
        self._begun_s = time.monotonic()
        self._active_s = self._begun_s
        self._next_word_s = FIRST_WORD_S

    def next_s(self) -> float:
        """How long to wait before asking again. Raises WorkerStallError when there is nothing left to wait for."""
        now_s = time.monotonic()
        waited_s = now_s - self._begun_s
        if self._timeout_s <= 0 and waited_s < FIRST_WORD_S:
            return FIRST_WORD_S - waited_s  # the usual case, which costs nothing
        if self._timeout_s > 0 and waited_s >= self._timeout_s:
            raise WorkerStallError(f"DataLoader timed out after {self._timeout_s} seconds; {self._waits_for()}")
        if waited_s >= self._next_word_s:
            self._next_word_s *= 2
            _LOG.warning("no batch for %.0f s; %s", waited_s, self._waits_for())
        if self._timeout_s > 0:
            return min(self._timeout_s, self._next_word_s) - waited_s
        if self._is_active():
            self._active_s = now_s
        if now_s - self._active_s >= IDLE_S or waited_s >= LONGEST_S:
            raise WorkerStallError(
                f"no batch for {waited_s:.0f} s; {self._waits_for()}\nGive timeout= if a batch may take longer"
            )
        return min(self._next_word_s - waited_s, FIRST_WORD_S)
