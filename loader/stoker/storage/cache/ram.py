"""Ranges in the memory of this process."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass

from stoker.storage.cache.ledger import Ledger, create_tables
from stoker.storage.cache.shared_ledger import leave_open
from stoker.storage.use import Use


@dataclass(frozen=True, slots=True)
class Evicted:
    """What had to go, and who would have used it next."""

    digest: bytes
    view: memoryview
    next_use: tuple[str, float] | None


class RamTier:
    """Thread-safe; holds at most ``num_bytes``, counting whole buffers."""

    def __init__(self, num_bytes: int, clock: Callable[[], float]) -> None:
        self._num_bytes = num_bytes
        self._clock = clock
        self._connection: sqlite3.Connection
        self._begin()

    def read(self, digest: bytes, use: Use) -> memoryview | None:
        """The range, if it is here, for a job that reads it now."""
        with self._lock:
            if digest in self._views:
                with self._ledger.transaction(self._clock()):
                    self._ledger.note(digest, use)
            return self._views.get(digest)

    def offer(self, digest: bytes, view: memoryview, use: Use) -> tuple[bool, list[Evicted]]:
        """Keep the range if the policy wants it: whether it is here, and what went for it."""
        with self._lock:
            if self._closed or view.nbytes > self._num_bytes:
                return False, []
            with self._ledger.transaction(self._clock()):
                self._ledger.note(digest, use)
                return (True, []) if digest in self._views else self._admit(digest, view)

    def holds(self, digest: bytes) -> bool:
        with self._lock:
            return digest in self._views

    def drop(self, digest: bytes) -> None:
        with self._lock:
            if digest in self._views:
                with self._ledger.transaction(self._clock()):
                    self._remove(digest)

    def held_bytes(self) -> int:
        with self._lock:
            return 0 if self._closed else self._ledger.held().num_bytes

    def close(self) -> None:
        with self._lock:
            self._views.clear()
            self._connection.close()
            self._closed = True

    def after_fork(self) -> None:
        """The child begins empty: another thread may have been inside when it was forked."""
        leave_open(self._connection)
        self._begin()

    def _admit(self, digest: bytes, view: memoryview) -> tuple[bool, list[Evicted]]:
        size = _size(view)
        victims = self._ledger.choose(digest, self._ledger.held().num_bytes + size - self._num_bytes, 0)
        if victims is None:
            return False, []
        gone = [self._remove(each.digest) for each in victims]
        self._ledger.add(digest, size)
        self._views[digest] = _owned(view)
        return True, gone

    def _remove(self, digest: bytes) -> Evicted:
        next_use = self._ledger.next_use(digest)
        self._ledger.remove(digest)
        return Evicted(digest, self._views.pop(digest), next_use)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._views: dict[bytes, memoryview] = {}
        self._closed = False
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        create_tables(self._connection)
        self._ledger = Ledger(self._connection)


def _size(view: memoryview) -> int:
    """What it will take in memory: a slice would keep all of what it was cut from, and is copied."""
    whole = view.obj
    return len(whole) if isinstance(whole, bytes) and len(whole) <= view.nbytes + 4096 else view.nbytes


def _owned(view: memoryview) -> memoryview:
    whole = view.obj
    return view if isinstance(whole, bytes) and len(whole) == _size(view) else memoryview(bytes(view))
