"""Errors of a cache's own disk, which end here: counted, said once, and followed by a pause."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from types import TracebackType
from typing import Final

from stoker.storage.cache.shared_ledger import LedgerBusyError

_LOG: Final = logging.getLogger("stoker")

PAUSE_S: Final = 10.0
"""After an error nothing is written for so long, and a folder is not opened."""


class Faults:
    """A ``with faults.slower():`` block that fails is left, and what follows it is done."""

    def __init__(self, where: str, clock: Callable[[], float]) -> None:
        self._where = where
        self._clock = clock
        self._said: set[str] = set()
        self._write_again_s = -float("inf")
        self.errors = 0

    def slower(self, *, writes: bool = False) -> Slower:
        """Around whatever touches the disk; ``writes`` are paused after an error."""
        return Slower(self, writes=writes)

    def may_write(self) -> bool:
        return self._clock() >= self._write_again_s

    def fault(self, reason: str, *, writes: bool = False) -> None:
        self.errors += 1
        self.say("fault", f"is slower than it could be: {reason}")
        if writes:
            self._write_again_s = self._clock() + PAUSE_S

    def say(self, kind: str, text: str) -> None:
        """One line of each kind: what follows is in the counts."""
        if kind not in self._said:
            self._said.add(kind)
            _LOG.warning("the cache in %s %s", self._where, text)


class Slower:
    """Takes errors of files and of the ledger; any other passes."""

    def __init__(self, faults: Faults, *, writes: bool) -> None:
        self._faults = faults
        self._writes = writes

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if isinstance(error, LedgerBusyError):
            self._faults.fault("others had its ledger for too long")
        elif isinstance(error, (OSError, sqlite3.Error)):
            self._faults.fault(f"{type(error).__name__}: {error}", writes=self._writes)
        else:
            return False
        return True
