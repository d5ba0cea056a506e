"""Retries of the loader's reads: how many, and their end when the loader closes."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from stoker.errors import ClosedError
from stoker.storage.open import open_store
from stoker.storage.retry import Retry
from stoker.storage.store import Store


class RetryTally:
    """Counts the retries of the stores it opens; safe for many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_closed = False
        self._open = threading.Lock()  # held until it is closed; an Event could be left locked by Ctrl-C
        self._open.acquire()
        self.retries = 0
        self.throttled = 0
        """Of the retries, those that the store asked for by saying that there are too many requests."""

    def open(self, url: str, options: Mapping[str, str]) -> Store:
        """A store whose retries are counted here."""
        return open_store(url, options, on_retry=self._add, sleep=self._sleep)

    def close(self) -> None:
        """End the waits for a retry, those to come too: the reads that wait end with ClosedError."""
        if not self._is_closed:
            self._is_closed = True
            self._open.release()

    def _sleep(self, seconds: float) -> None:
        if not self._is_closed and self._open.acquire(timeout=seconds):
            self._open.release()  # the next who waits
        if self._is_closed:
            raise ClosedError("the loader was closed while a read waited to be tried again")

    def _add(self, retry: Retry) -> None:
        with self._lock:
            self.retries += 1
            self.throttled += retry.is_throttled
