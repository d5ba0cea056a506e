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

from stoker.errors import ChangedError, SpecError, StorageError, TransientError
from stoker.storage.peek import PeekingStore
from stoker.storage.resume import Progress
from stoker.storage.store import ObjectInfo
from stoker.storage.urls import shown
from stoker.storage.versions import changed

T = TypeVar("T")

_SYSTEM_RANDOM = random.SystemRandom()  # not the user's generator, and different after a fork


class ThrottledError(TransientError):
    """The store asked for fewer requests; seen by ``on_retry``, leaves this module as TransientError."""


class ShortAnswerError(TransientError):
    """Fewer bytes than asked for: cut on the way, or the object ends earlier (then no retry helps)."""


class CutAnswerError(TransientError):
    """The body broke off after ``body``, which is good and of ``version`` (empty: unknown)."""

    def __init__(self, reason: str, body: memoryview, version: str) -> None:
        super().__init__(reason)
        self.body = body
        self.version = version

    @property
    def can_resume(self) -> bool:
        """Whether the rest alone can be asked for: it must be certain that it belongs to these bytes."""
        return bool(self.body) and bool(self.version)


class CorruptAnswerError(TransientError):
    """A body of the right length does not have the checksum that the store gave."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to insist. No attempt begins that could outlast ``deadline_s``, except the first.

    Attempts that brought a part of the body do not count towards ``max_attempts``.
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
    kept_bytes: int = 0  # of a body that broke off; only the rest is asked for again


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

    def read(self, url: str, start: int, stop: int, version: str = "") -> memoryview:
        """Exactly ``[start, stop)``. An empty range is answered without a request."""
        if not 0 <= start <= stop:
            raise SpecError(f"{shown(url)}: expected a range with 0 <= start <= stop, found [{start}, {stop})")
        if start == stop:
            return memoryview(b"")
        progress = Progress(start, version)
        return self._insist(lambda: self._read_on(url, stop, progress), f"{shown(url)} bytes [{start}, {stop})")

    def write(self, url: str, payload: bytes) -> None:
        self._insist(lambda: self._inner.write(url, payload), f"write of {len(payload)} bytes to {shown(url)}")

    def _read_on(self, url: str, stop: int, progress: Progress) -> memoryview:
        """Read what is missing."""
        try:
            return progress.finish(self._read_once(url, progress.position, stop, progress.version))
        except CutAnswerError as error:
            if error.can_resume:
                progress.keep(error.body, error.version)
            raise
        except ChangedError as error:
            if not progress.has_kept:
                raise
            progress.forget()
            raise TransientError("the object was replaced while it was read") from error

    def _read_once(self, url: str, start: int, stop: int, version: str) -> memoryview:
        try:
            body = self._inner.read(url, start, stop, version)
            if len(body) == stop - start:
                return body
            raise ShortAnswerError(f"expected {stop - start} bytes, found {len(body)}")
        except ShortAnswerError:
            found = self._inner.head(url)
            if found.size_bytes < stop:
                if version not in ("", found.version):
                    raise changed(shown(url), expected=version, found=found.version) from None
                raise StorageError(
                    f"{shown(url)} has {found.size_bytes} bytes, bytes [{start}, {stop}) were asked for: "
                    "it changed since it was indexed, or the index belongs to another object"
                ) from None
            raise

    def _insist(self, attempt: Callable[[], T], subject: str) -> T:
        begin_s = self._clock()
        num_attempts = num_fruitless = 0
        while True:
            try:
                return attempt()
            except TransientError as error:
                kept_bytes = len(error.body) if isinstance(error, CutAnswerError) and error.can_resume else 0
                num_attempts += 1
                num_fruitless += kept_bytes == 0
                elapsed_s = self._clock() - begin_s
                is_throttled = isinstance(error, ThrottledError)
                wait_s = wait_before_retry(
                    self._policy,
                    num_attempts=max(1, num_fruitless),
                    elapsed_s=elapsed_s,
                    is_throttled=is_throttled,
                    uniform=self._uniform(),
                )
                if wait_s is None:
                    raise _given_up(subject, num_attempts, elapsed_s, error) from None
                if self._on_retry is not None:
                    self._on_retry(Retry(subject, num_attempts, wait_s, is_throttled, str(error), kept_bytes))
                self._sleep(wait_s)


def _given_up(subject: str, num_attempts: int, elapsed_s: float, last: TransientError) -> TransientError:
    times = "1 attempt" if num_attempts == 1 else f"{num_attempts} attempts"
    return TransientError(f"{subject}: no good answer in {times} over {elapsed_s:.1f} s; the last: {last}")
