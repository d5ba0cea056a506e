"""The thread that brings decoded rows together and puts complete chunks into their place."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from stoker.engine.prepared_spool import Spool
from stoker.engine.prepared_stats import PreparedCounts, PreparedStats

_LOG: Final = logging.getLogger("stoker")

QUEUE_BYTES: Final = 64 << 20
"""Rows that wait for the disk; of more, those of other chunks are left to the next epoch."""

MAX_ENTRY_BYTES: Final = 256 << 20
"""An entry is made in memory; chunks that would be larger, such as those of compressed shards, are not kept."""

MAX_ERRORS: Final = 16
"""After so many writes in a row that failed, no more are tried."""

WriteEntry = Callable[[int, list[bytes]], bool]
"""Puts the rows of a chunk; False if there is no room. Raises OSError."""


@dataclass(frozen=True, slots=True)
class _Item:
    chunk_index: int
    row: int
    num_rows: int
    packed: bytes
    epoch: int


class Writer:
    """Takes rows from decoding threads without keeping them waiting; its thread lives while there is work.

    Whatever goes wrong is counted, said once, and costs no more than that chunks are decoded again.
    """

    def __init__(self, spool: Callable[[], Spool], write: WriteEntry, stats: PreparedStats) -> None:
        self._open_spool = spool
        self._write = write
        self._stats = stats
        self._lock = threading.Lock()
        self._queue: deque[_Item | Callable[[], None]] = deque()
        self._queued_bytes = 0
        self._thread: threading.Thread | None = None
        self._spool: Spool | None = None
        self._done: set[int] = set()
        self._errors = 0
        self._is_closed = False

    def wants(self, chunk_index: int) -> bool:
        """Whether rows of this chunk may still come together here."""
        return not self._is_closed and chunk_index not in self._done

    def add(self, chunk_index: int, row: int, num_rows: int, packed: bytes, epoch: int) -> None:
        """Keep a row of a chunk; may be called by any thread."""
        with self._lock:
            if not self.wants(chunk_index) or self._queued_bytes + len(packed) > QUEUE_BYTES:
                return
            self._queued_bytes += len(packed)
            self._put(_Item(chunk_index, row, num_rows, packed, epoch))

    def forget(self, chunk_index: int) -> None:
        """This chunk cannot be kept."""
        with self._lock:
            self._done.add(chunk_index)
            self._put(lambda: self._spool.drop(chunk_index) if self._spool is not None else None)

    def want(self, chunk_index: int) -> None:
        """This chunk's entry proved damaged: bring it together again."""
        with self._lock:
            self._done.discard(chunk_index)

    def call(self, do: Callable[[], None]) -> None:
        """Have the thread do something."""
        with self._lock:
            self._put(do)

    def stop(self) -> None:
        """Write no more than what is in hand."""
        with self._lock:
            self._is_closed = True
            self._queue.clear()
            if self._thread is None:
                self._let_go()

    def close(self, timeout_s: float = 0.4) -> None:
        """Write no more, and wait for what is in hand, for a time; it is given up with the process."""
        self.stop()
        self.wait(timeout_s)

    def wait(self, timeout_s: float) -> None:
        """Wait until all that was added is written; for those who close at the end of an epoch, and tests."""
        with self._lock:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)

    def _let_go(self) -> None:
        if self._spool is not None:
            self._spool.close()
            self._spool = None

    def _put(self, item: _Item | Callable[[], None]) -> None:
        if self._is_closed:
            return
        self._queue.append(item)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stoker-keep-decoded", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (item := self._take()) is not None:
            try:
                self._do(item)
                self._errors = 0
            except OSError as error:
                self._failed(item, error)
            del item

    def _take(self) -> _Item | Callable[[], None] | None:
        with self._lock:
            if not self._queue:
                self._thread = None
                if self._is_closed:
                    self._let_go()
                return None
            item = self._queue.popleft()
            if isinstance(item, _Item):
                self._queued_bytes -= len(item.packed)
            return item

    def _do(self, item: _Item | Callable[[], None]) -> None:
        if not isinstance(item, _Item):
            item()
            return
        if item.chunk_index in self._done:
            return
        if len(item.packed) * item.num_rows > MAX_ENTRY_BYTES:
            self._done.add(item.chunk_index)
            self._stats.add(PreparedCounts(declined=1))
            return
        if self._spool is None:
            self._spool = self._open_spool()
        if not self._spool.add(item.chunk_index, item.row, item.num_rows, item.packed, item.epoch):
            return
        rows = self._spool.take(item.chunk_index)
        with self._lock:
            self._done.add(item.chunk_index)
        if self._write(item.chunk_index, rows):
            self._stats.add(PreparedCounts(entries_written=1, bytes_written=sum(map(len, rows))))
        else:  # nothing is ever deleted to make room: it will not be more
            self._stats.add(PreparedCounts(declined=1))
            self.stop()

    def _failed(self, item: _Item | Callable[[], None], error: OSError) -> None:
        self._stats.add(PreparedCounts(errors=1))
        self._errors += 1
        if isinstance(item, _Item) and self._spool is not None:
            self._spool.drop(item.chunk_index)
        if self._errors == 1:
            _LOG.warning("decoded cache: %s; such samples are decoded again in each epoch", error)
        if self._errors == MAX_ERRORS:
            self.stop()
