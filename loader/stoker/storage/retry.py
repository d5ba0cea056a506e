"""A second try for what may heal.

``wait_before_retry`` decides (pure); ``RetryingStore`` acts. What leaves it is complete or an error that names
URL, range, number of attempts and the last reason.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from stoker.errors import SpecError, StorageError, TransientError
from stoker.storage.peek import PeekingStore
from stoker.storage.store import ObjectInfo
from stoker.storage.urls import shown

T = TypeVar("T")

_SYSTEM_RANDOM = random.SystemRandom()  # not the user's generator, and different after a fork


class ThrottledError(TransientError):
    """The store asked for fewer requests; seen by ``on_retry``, leaves this module as TransientError."""


class ShortAnswerError(TransientError):
    """Fewer bytes than asked for: cut on the way, or the object ends earlier (then no retry helps)."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to insist. No attempt begins that could outlast ``deadline_s``, except the first.

    ``attempt_s`` bounds one request where the back-end can be bounded (obstore).
    Waits are drawn from [0, w), w doubling from ``first_wait_s`` to ``max_wait_s`` ("full jitter", Brooker 2015);
    a throttled request waits at least w / 2.
    """

    max_attempts: int = 8
    attempt_s: float = 30.0
    deadline_s: float = 120.0
    first_wait_s: float = 0.1
    max_wait_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Retry:
    """One failed attempt that will be repeated after ``wait_s``; what ``on_retry`` is given."""

    subject: str
    attempt: int
    wait_s: float
    is_throttled: bool
    reason: str


def wait_before_retry(
    policy: RetryPolicy, *, num_attempts: int, elapsed_s: float, is_throttled: bool, uniform: float
) -> float | None:
    """Seconds to wait after the ``num_attempts``-th failure, or None to give up; ``uniform`` is in [0, 1)."""
    if num_attempts >= policy.max_attempts:
        return None
    ceiling_s = min(policy.max_wait_s, policy.first_wait_s * 2.0 ** (num_attempts - 1))
    wait_s = ceiling_s * ((1 + uniform) / 2 if is_throttled else uniform)
    ends_in_time = elapsed_s + wait_s + policy.attempt_s <= policy.deadline_s
    return wait_s if ends_in_time else None


class RetryingStore:
    """Wraps a store whose calls are single attempts; time, sleep and chance are given by the caller.

    ``sleep`` may raise to leave early (an engine that closes). ``on_retry`` is called in the reading thread.
    """

    def __init__(
        self,
        inner: PeekingStore,
        policy: RetryPolicy,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        uniform: Callable[[], float] = _SYSTEM_RANDOM.random,
        on_retry: Callable[[Retry], None] | None = None,
    ) -> None:
        self._inner = inner
        self._policy = policy
        self._clock = clock
        self._sleep = sleep
        self._uniform = uniform
        self._on_retry = on_retry

    def head(self, url: str) -> ObjectInfo:
        return self._insist(lambda: self._inner.head(url), shown(url))

    def list(self, prefix: str, *, max_depth: int | None = None) -> Iterator[ObjectInfo]:
        return iter(
            self._insist(lambda: list(self._inner.list(prefix, max_depth=max_depth)), f"listing of {shown(prefix)}")
        )

    def peek(self, folder: str) -> Sequence[str]:
        return self._insist(lambda: self._inner.peek(folder), f"listing of {shown(folder)}")

    def read(self, url: str, start: int, stop: int) -> memoryview:
        """Exactly ``[start, stop)``. An empty range is answered without a request."""
        if not 0 <= start <= stop:
            raise SpecError(f"{shown(url)}: expected a range with 0 <= start <= stop, found [{start}, {stop})")
        if start == stop:
            return memoryview(b"")
        return self._insist(lambda: self._read_once(url, start, stop), f"{shown(url)} bytes [{start}, {stop})")

    def write(self, url: str, payload: bytes) -> None:
        self._insist(lambda: self._inner.write(url, payload), f"write of {len(payload)} bytes to {shown(url)}")

    def _read_once(self, url: str, start: int, stop: int) -> memoryview:
        try:
            body = self._inner.read(url, start, stop)
            if len(body) == stop - start:
                return body
            raise ShortAnswerError(f"expected {stop - start} bytes, found {len(body)}")
        except ShortAnswerError:
            size_bytes = self._inner.head(url).size_bytes
            if size_bytes < stop:
                raise StorageError(
                    f"{shown(url)} has {size_bytes} bytes, bytes [{start}, {stop}) were asked for: "
                    "it changed since it was indexed, or the index belongs to another object"
                ) from None
            raise

    def _insist(self, attempt: Callable[[], T], subject: str) -> T:
        begin_s = self._clock()
        num_attempts = 0
        while True:
            try:
                return attempt()
            except TransientError as error:
                num_attempts += 1
                self._wait_or_give_up(error, subject, num_attempts, self._clock() - begin_s)

    def _wait_or_give_up(self, error: TransientError, subject: str, num_attempts: int, elapsed_s: float) -> None:
        is_throttled = isinstance(error, ThrottledError)
        wait_s = wait_before_retry(
            self._policy,
            num_attempts=num_attempts,
            elapsed_s=elapsed_s,
            is_throttled=is_throttled,
            uniform=self._uniform(),
        )
        if wait_s is None:
            times = "1 attempt" if num_attempts == 1 else f"{num_attempts} attempts"
            raise TransientError(f"{subject}: no good answer in {times} over {elapsed_s:.1f} s; the last: {error}")
        if self._on_retry is not None:
            self._on_retry(Retry(subject, num_attempts, wait_s, is_throttled, str(error)))
        self._sleep(wait_s)
