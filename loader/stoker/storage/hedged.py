"""Sends a second request for a read that is slow, and takes the answer that comes first."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from stoker.errors import TransientError
from stoker.storage.fork_news import tell_after_fork
from stoker.storage.hedge import HedgeBook, HedgePolicy
from stoker.storage.meter import Meter
from stoker.storage.peek import PeekingStore
from stoker.storage.retry import ThrottledError
from stoker.storage.store import ObjectInfo

MAX_LOSERS = 16
"""Requests in flight whose answer nobody waits for any more, with at most one part of a body each."""


@dataclass(slots=True)
class _Answer:
    is_second: bool
    body: memoryview | None
    error: BaseException | None


@dataclass(slots=True)
class _Race:
    """The requests for one read; ``num_in_flight`` and ``is_over`` change under the store's lock."""

    ask: Callable[[], memoryview]
    answers: queue.SimpleQueue[_Answer] = field(default_factory=queue.SimpleQueue)
    num_in_flight: int = 0
    is_over: bool = False

    def wait(self, seconds: float) -> _Answer | None:
        try:
            return self.answers.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None


class HedgedStore:
    """Wraps a store whose calls are single attempts and may be made twice at once.

    A read runs in the caller's thread unless it may be hedged (see ``hedge.py``): then its requests run in daemon
    threads and the caller waits. The loser cannot be cancelled: it ends by its own deadline, and its answer is dropped.
    While ``MAX_LOSERS`` are in flight, nothing is hedged.
    """

    def __init__(
        self,
        inner: PeekingStore,
        *,
        deadline_s: float,
        meter: Meter | None = None,
        policy: HedgePolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner = inner
        self._deadline_s = deadline_s
        self._meter = meter
        self._clock = clock
        self._policy = policy or HedgePolicy()
        self._lock = threading.Lock()
        self._book = HedgeBook(self._policy)
        self._num_losers = 0
        tell_after_fork(self)

    def head(self, url: str) -> ObjectInfo:
        return self._inner.head(url)

    def list(self, prefix: str, *, max_depth: int | None = None) -> Iterator[ObjectInfo]:
        return self._inner.list(prefix, max_depth=max_depth)

    def peek(self, folder: str) -> Sequence[str]:
        return self._inner.peek(folder)

    def write(self, url: str, payload: bytes) -> None:
        self._inner.write(url, payload)

    def read(self, url: str, start: int, stop: int, version: str = "") -> memoryview:
        """The first good answer; an error if every request that was sent has failed, or one as no other could mend.

        Both together have ``deadline_s``, the time of one attempt.
        """
        now_s = self._clock()
        with self._lock:
            after_s = self._book.after_s(stop - start, now_s) if self._num_losers < MAX_LOSERS else None
        if after_s is None:
            return self._read_alone(url, start, stop, version)
        race = _Race(lambda: self._read_alone(url, start, stop, version))
        try:
            return self._run(race, after_s, now_s + self._deadline_s)
        finally:
            with self._lock:
                race.is_over = True
                self._num_losers += race.num_in_flight

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._book = HedgeBook(self._policy)
        self._num_losers = 0

    def _read_alone(self, url: str, start: int, stop: int, version: str) -> memoryview:
        begin_s = self._clock()
        try:
            body = self._inner.read(url, start, stop, version)
        except ThrottledError:
            with self._lock:
                self._book.throttled(self._clock())
            raise
        with self._lock:
            self._book.answered(stop - start, self._clock() - begin_s)
        return body

    def _run(self, race: _Race, after_s: float, deadline_s: float) -> memoryview:
        if not self._send(race, is_second=False):
            return race.ask()
        num_awaited = 1
        answer = race.wait(min(after_s, deadline_s - self._clock()))
        if answer is None and self._send_second(race):
            num_awaited = 2
        while True:
            answer = answer or race.wait(deadline_s - self._clock())
            if answer is None:
                raise TransientError("no complete answer in time (stalled, or too slow)")
            num_awaited -= 1
            if answer.body is not None:
                if answer.is_second and self._meter is not None:
                    self._meter.hedge_won()
                return answer.body
            if answer.error is not None and (num_awaited == 0 or not isinstance(answer.error, TransientError)):
                try:
                    raise answer.error
                finally:
                    answer = None  # the error holds this frame, which must not hold the error
            answer = None

    def _send_second(self, race: _Race) -> bool:
        with self._lock:
            if not self._book.may_hedge(self._clock()):
                return False
            self._book.hedged()  # before it is sent: others decide meanwhile
        if self._meter is not None:
            self._meter.hedged()
        return self._send(race, is_second=True)

    def _send(self, race: _Race, *, is_second: bool) -> bool:
        """Start a request in a thread of its own; False if the process may have no more threads."""
        thread = threading.Thread(target=self._answer, args=(race, is_second), name="stoker-hedge", daemon=True)
        with self._lock:
            race.num_in_flight += 1
        try:
            thread.start()
        except RuntimeError:
            with self._lock:
                race.num_in_flight -= 1
            return False
        return True

    def _answer(self, race: _Race, is_second: bool) -> None:
        try:
            answer = _Answer(is_second, race.ask(), None)
        except BaseException as error:  # noqa: BLE001  # it goes to whoever waits for the answer
            answer = _Answer(is_second, None, error)
        with self._lock:
            race.num_in_flight -= 1
            self._num_losers -= race.is_over
        race.answers.put(answer)
