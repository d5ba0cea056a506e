"""Keeps the requests of a store within the rate that it serves."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from stoker.storage.peek import PeekingStore
from stoker.storage.rate import RateLimits
from stoker.storage.retry import RetryPolicy, ThrottledError
from stoker.storage.store import ObjectInfo

LOOK_S: Final = 1.0
"""Who waits longer looks again after so long, as the rate may have changed."""


class LimitedStore:
    """Wraps a store whose calls are single requests: each waits for its turn first, ``max_wait_s`` at most.

    If its turn comes later than that, it fails as throttled, without a request. ``sleep`` may raise to leave early.
    """

    def __init__(
        self,
        inner: PeekingStore,
        limits: RateLimits,
        *,
        max_wait_s: float = RetryPolicy().attempt_s,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._inner = inner
        self._limits = limits
        self._max_wait_s = max_wait_s
        self._sleep = sleep

    def head(self, url: str) -> ObjectInfo:
        with self._turn(url):
            return self._inner.head(url)

    def list(self, prefix: str, *, max_depth: int | None = None) -> Iterator[ObjectInfo]:
        with self._turn(prefix):
            yield from self._inner.list(prefix, max_depth=max_depth)

    def peek(self, folder: str) -> Sequence[str]:
        with self._turn(folder):
            return self._inner.peek(folder)

    def read(self, url: str, start: int, stop: int, version: str = "") -> memoryview:
        self._wait(url)  # as in _turn, which costs as much again as all of this: reads are many
        is_throttled = False
        try:
            return self._inner.read(url, start, stop, version)
        except ThrottledError:
            is_throttled = True
            raise
        finally:
            self._limits.answered(url, is_throttled=is_throttled)

    def write(self, url: str, payload: bytes) -> None:
        with self._turn(url):
            self._inner.write(url, payload)

    @contextlib.contextmanager
    def _turn(self, url: str) -> Iterator[None]:
        self._wait(url)
        is_throttled = False
        try:
            yield
        except ThrottledError:
            is_throttled = True
            raise
        finally:
            self._limits.answered(url, is_throttled=is_throttled)

    def _wait(self, url: str) -> None:
        turn = self._limits.ask(url)
        if not turn.number:  # nothing limits it
            return
        waited_s = 0.0
        try:
            while (wait_s := self._limits.wait_for(turn)) > 0:
                if waited_s + wait_s > self._max_wait_s:
                    raise ThrottledError(
                        f"no turn within {self._max_wait_s:g} s: the store has asked for fewer requests; too many wait"
                    )
                self._sleep(min(wait_s, LOOK_S))
                waited_s += min(wait_s, LOOK_S)
        except BaseException:
            self._limits.give_up(turn)
            raise
