"""Ranges that threads of this process are getting just now."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import Future


class Flights:
    """One thread gets a range, the others wait for it. Thread-safe."""

    def __init__(self) -> None:
        self.after_fork()

    def join(self, digest: bytes) -> tuple[Future[memoryview], bool]:
        """The flight of a range, and whether it is the caller's: who then gives it the bytes, and ends it."""
        with self._lock:
            flight = self._flights.get(digest)
            if flight is not None:
                return flight, False
            flight = self._flights[digest] = Future()
            return flight, True

    def end(self, digests: Iterable[bytes]) -> None:
        """Those who still wait get CancelledError."""
        with self._lock:
            ended = [flight for digest in digests if (flight := self._flights.pop(digest, None))]
        for flight in ended:
            flight.cancel()

    def after_fork(self) -> None:
        """The threads of the parent get nothing for the child."""
        self._lock = threading.Lock()
        self._flights: dict[bytes, Future[memoryview]] = {}
