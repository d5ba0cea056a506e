"""The loader's requests to storage: how many, how they fare, and the end of their waits when the loader closes."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from stoker.errors import ClosedError
from stoker.storage.meter import Meter, StorageStats
from stoker.storage.open import open_store
from stoker.storage.rate import RateLimits
from stoker.storage.store import Store


class RetryTally:
    """Counts what the stores that it opens are asked for; safe for many threads.

    ``limits`` are the request rates that these stores keep to, if they share them with others.
    """

    def __init__(self, limits: RateLimits | None = None) -> None:
        self._meter = Meter()
        self._limits = RateLimits() if limits is None else limits
        self._is_closed = False
        self._open = threading.Lock()  # held until it is closed; an Event could be left locked by Ctrl-C
        self._open.acquire()

    def stats(self) -> StorageStats:
        """What was asked for until now."""
        return self._meter.stats()

    def open(self, url: str, options: Mapping[str, str]) -> Store:
        """A store whose requests are counted here."""
        return open_store(url, options, sleep=self._sleep, meter=self._meter, limits=self._limits)

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
