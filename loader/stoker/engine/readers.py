"""Threads that read chunks, as many at once as the measured throughput rewards."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from stoker.engine.chunk_source import ChunkSource
from stoker.engine.feed import ChunkUse
from stoker.engine.retries import RetryTally
from stoker.formats.dataset import ChunkContent
from stoker.storage.concurrency import Concurrency, Window, observe

OnCrash = Callable[[BaseException], None]
"""Called in a reading thread with an error that no policy covers: a fault of ours."""

OnRead = Callable[[ChunkUse, ChunkContent, int, float], None]
"""Called in a reading thread with the chunk, what it holds, its bytes and the seconds it took."""


WINDOW_READS = 20
WINDOW_S = 1.0
"""A decision on how many reads to keep in flight is made after so many reads or seconds, whichever comes first."""


class Readers:
    """Reads chunks in the order they were asked for; owns its threads."""

    def __init__(
        self,
        source: ChunkSource,
        chunk_bytes: Callable[[ChunkUse], int],
        on_read: OnRead,
        on_crash: OnCrash,
        concurrency: Concurrency,
        tally: RetryTally,
    ) -> None:
        self._source = source
        self._chunk_bytes = chunk_bytes
        self._on_read = on_read
        self._on_crash = on_crash
        self._concurrency = concurrency
        self._tally = tally
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._queue: deque[ChunkUse] = deque()
        self._busy: dict[int, tuple[list[ChunkUse], float]] = {}
        self._threads: list[threading.Thread] = []
        self._closing = False
        self._begin_window()

    def submit(self, uses: Sequence[ChunkUse]) -> None:
        """Queue chunks to be read; nothing once it closes, for a thread that starts then is one that nobody joins."""
        with self._changed:
            if self._closing:
                return
            self._queue.extend(uses)
            self._grow()
            self._changed.notify(len(uses))

    def in_flight(self) -> list[tuple[ChunkUse, float]]:
        """The first chunk of each read under way, with the seconds since it began; the longest first."""
        now = time.monotonic()
        with self._lock:  # not the condition: see the engine on Ctrl-C
            return sorted(((uses[0], now - begun) for uses, begun in self._busy.values()), key=lambda item: -item[1])

    def close(self, deadline_s: float) -> None:
        """Stop after the reads in hand, or at the deadline (of the monotonic clock), whichever comes first."""
        with self._lock:
            self._closing = True
            self._queue.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))

    def _grow(self) -> None:
        wanted = min(self._concurrency.in_flight, len(self._busy) + len(self._queue))
        while len(self._threads) < wanted:
            thread = threading.Thread(target=self._run, name=f"stoker-read-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  # the thread's outermost loop: the trainer must hear of it
            self._on_crash(error)

    def _work(self) -> None:
        while (uses := self._take()) is not None:
            begun = time.monotonic()
            contents = self._source.read(uses)
            seconds = time.monotonic() - begun
            sizes = [self._chunk_bytes(use) for use in uses]
            with self._changed:
                self._measure(sum(sizes))
                del self._busy[threading.get_ident()]
                self._grow()
                self._changed.notify()
            for use, content, num_bytes in zip(uses, contents, sizes, strict=True):
                self._on_read(use, content, num_bytes, seconds / len(uses))

    def _measure(self, num_bytes: int) -> None:
        """Add a read to the window of measurement; at its end, decide on how many to keep in flight."""
        self._window_bytes += num_bytes
        self._window_reads += 1
        self._window_full += len(self._busy) >= self._concurrency.in_flight
        duration_s = time.monotonic() - self._window_begun
        if self._window_reads < WINDOW_READS and duration_s < WINDOW_S:
            return
        throttled = self._tally.stats().throttled - self._window_throttled
        was_full = 2 * self._window_full > self._window_reads
        self._concurrency = observe(self._concurrency, Window(self._window_bytes, duration_s, throttled, was_full))
        self._begin_window()

    def _begin_window(self) -> None:
        self._window_begun = time.monotonic()
        self._window_throttled = self._tally.stats().throttled
        self._window_bytes = self._window_reads = self._window_full = 0

    def _take(self) -> list[ChunkUse] | None:
        """The next chunk of the queue, with those behind it that one request reads with it; None when it closes."""
        with self._changed:
            while not self._closing:
                if self._queue and len(self._busy) < self._concurrency.in_flight:
                    uses = [self._queue.popleft()]
                    while self._queue and self._source.runs_on(uses, self._queue[0]):
                        uses.append(self._queue.popleft())
                    self._busy[threading.get_ident()] = (uses, time.monotonic())
                    return uses
                self._changed.wait()
        return None
