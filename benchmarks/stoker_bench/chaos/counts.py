"""What a server was asked for, what it answered."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Line:
    """The requests of one kind: how many, and the bytes of the bodies that were sent for them."""

    method: str
    path: str
    status: int
    requests: int
    body_bytes: int


class Counts:
    """Requests and bytes by method, path and status; safe to read while the server works.

    ``most_in_flight`` is the largest number of requests that were being answered at the same time; ``faults`` counts
    what went wrong by its name, and ``throttled`` and ``expired`` under these.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._bytes: Counter[tuple[str, str, int]] = Counter()
        self._faults: Counter[str] = Counter()
        self._in_flight = 0
        self._most_in_flight = 0

    def begin(self) -> None:
        """A request has come."""
        with self._lock:
            self._in_flight += 1
            self._most_in_flight = max(self._most_in_flight, self._in_flight)

    def end(self, method: str, path: str, status: int, body_bytes: int) -> None:
        """A request is done with."""
        with self._lock:
            self._in_flight -= 1
            self._requests[method, path, status] += 1
            self._bytes[method, path, status] += body_bytes
            if not self._in_flight:
                self._idle.notify_all()

    def wait_until_idle(self, deadline_s: float) -> bool:
        """Wait until nothing is in flight: a client has its answer a little before it is counted here."""
        with self._idle:
            return self._idle.wait_for(lambda: not self._in_flight, deadline_s)

    def fault(self, name: str) -> None:
        """Something went wrong on purpose."""
        with self._lock:
            self._faults[name] += 1

    def reset(self) -> None:
        """Begin to count anew."""
        with self._lock:
            self._requests.clear()
            self._bytes.clear()
            self._faults.clear()
            self._most_in_flight = self._in_flight

    def lines(self, *, method: str | None = None, prefix: str = "", status: int | None = None) -> list[Line]:
        """What was counted, of one method and status if given, of paths that begin with ``prefix``; sorted."""
        with self._lock:
            return [
                Line(*key, number, self._bytes[key])
                for key, number in sorted(self._requests.items())
                if (method is None or key[0] == method)
                and key[1].startswith(prefix)
                and (status is None or key[2] == status)
            ]

    def requests(self, *, method: str | None = None, prefix: str = "", status: int | None = None) -> int:
        """How many requests; see :meth:`lines`."""
        return sum(line.requests for line in self.lines(method=method, prefix=prefix, status=status))

    def origin_bytes(self, prefix: str = "") -> int:
        """The bytes of objects that were sent in answer to GET, whole or in part; no listings or errors."""
        return sum(
            line.body_bytes
            for line in self.lines(method="GET", prefix=prefix)
            if line.status in {200, 206} and is_object(line.path)
        )

    @property
    def faults(self) -> dict[str, int]:
        with self._lock:
            return dict(self._faults)

    @property
    def most_in_flight(self) -> int:
        with self._lock:
            return self._most_in_flight

    def as_json(self) -> dict[str, Any]:
        """All of it, for the admin endpoint."""
        return {
            "requests": self.requests(),
            "origin_bytes": self.origin_bytes(),
            "most_in_flight": self.most_in_flight,
            "faults": self.faults,
            "lines": [
                {
                    "method": line.method,
                    "path": line.path,
                    "status": line.status,
                    "requests": line.requests,
                    "body_bytes": line.body_bytes,
                }
                for line in self.lines()
            ],
        }


def is_object(path: str) -> bool:
    """Whether a path, ``/bucket/key``, names an object rather than a bucket."""
    return bool(path.strip("/").partition("/")[2])
