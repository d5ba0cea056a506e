"""A store that keeps its user waiting and fails, as a profile says."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NoReturn

from stoker.errors import TransientError
from stoker.storage.chaos.flips import Flips
from stoker.storage.chaos.limits import Limits
from stoker.storage.chaos.profile import Fate, Fault, Profile, draw, parse, transfer_s
from stoker.storage.fork_news import tell_after_fork
from stoker.storage.peek import PeekingStore
from stoker.storage.retry import CutAnswerError, ShortAnswerError, ThrottledError
from stoker.storage.store import ObjectInfo

_CUT: Final = "the answer was cut on the way"
_TOO_SLOW: Final = "no complete answer in time (stalled, or too slow)"


def chaos_store(
    inner: PeekingStore,
    text: str,
    *,
    sleep: Callable[[float], object] = time.sleep,
    timeout_s: float = math.inf,
) -> PeekingStore:
    """Wrap a store whose calls are single attempts; ``text`` is that of ``profile.parse``. Raises SpecError.

    ``sleep`` may raise to leave early; ``timeout_s`` is the longest that one request may last.
    """
    return ChaosStore(inner, parse(text), sleep=sleep, timeout_s=timeout_s)


class ChaosStore:
    """Every call is one request, drawn a fate by its number; safe for many threads.

    What fails, fails with the error that the real fault becomes in ``translate.py``; a flipped byte is just returned. A
    listing is one request a page. Expiry of credentials fails one request in each period: the client has renewed them.
    """

    def __init__(
        self,
        inner: PeekingStore,
        profile: Profile,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        timeout_s: float = math.inf,
    ) -> None:
        self._inner = inner
        self._profile = profile
        self._clock = clock
        self._sleep = sleep
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._limits = Limits()
        self._flips = Flips()
        self._signed_s = clock()
        tell_after_fork(self)

    def after_fork(self) -> None:
        """See :class:`stoker.storage.fork_news.Forkable`."""
        self._lock = threading.Lock()

    def head(self, url: str) -> ObjectInfo:
        self._request(url)
        return self._inner.head(url)

    def list(self, prefix: str, *, max_depth: int | None = None) -> Iterator[ObjectInfo]:
        self._request(prefix)
        for index, found in enumerate(self._inner.list(prefix, max_depth=max_depth)):
            if index and self._profile.page and index % self._profile.page == 0:
                self._request(prefix)
            yield found

    def peek(self, folder: str) -> Sequence[str]:
        self._request(folder)
        return self._inner.peek(folder)

    def read(self, url: str, start: int, stop: int, version: str = "") -> memoryview:
        fate = self._begin(url)
        match fate.fault:
            case Fault.FAIL | Fault.STALL:
                self._fail(fate.fault)
            case Fault.EMPTY:
                raise ShortAnswerError(f"expected {stop - start} bytes, found 0")
        body = self._inner.read(url, start, stop, version)
        at = fate.byte(self._profile, len(body))
        if fate.fault is Fault.CUT:
            self._wait(transfer_s(self._profile, at))
            raise CutAnswerError(_CUT, body[:at], version)
        self._wait(transfer_s(self._profile, len(body)))
        is_flipped = fate.fault is Fault.FLIP and self._flips_once(url, start, start + len(body), start + at)
        return _flipped(body, at, fate.bit()) if is_flipped else body

    def write(self, url: str, payload: bytes) -> None:
        self._request(url)
        self._inner.write(url, payload)

    def _request(self, name: str) -> None:
        """A request without a body that could be spoilt: it fails as a whole, whatever its fault is."""
        fate = self._begin(name)
        if fate.fault not in {Fault.NONE, Fault.FLIP}:
            self._fail(fate.fault)

    def _begin(self, name: str) -> Fate:
        """Admit a request and wait for the first byte of its answer."""
        fate = draw(self._profile, self._admit(name, self._clock()))
        self._wait(min(fate.latency_s, self._timeout_s))
        if fate.latency_s > self._timeout_s:
            raise TransientError(_TOO_SLOW)
        return fate

    def _admit(self, name: str, now_s: float) -> int:
        with self._lock:
            if not self._limits.lets_through(self._profile, name, now_s):
                raise ThrottledError(f"the store asks for fewer requests (HTTP {self._profile.throttle})")
            if self._profile.expire_s and now_s - self._signed_s >= self._profile.expire_s:
                self._signed_s = now_s
                raise TransientError("the credentials have expired and are renewed")
            return next(self._numbers)

    def _flips_once(self, url: str, start: int, stop: int, at: int) -> bool:
        with self._lock:
            return start < stop and self._flips.flips(url, start, stop, at)

    def _fail(self, fault: Fault) -> NoReturn:
        match fault:
            case Fault.STALL:
                self._wait(min(self._profile.stall_s, self._timeout_s))
                raise TransientError(_TOO_SLOW)
            case Fault.FAIL:
                raise TransientError("the store failed (HTTP 500)")
            case _:
                raise TransientError(_CUT)

    def _wait(self, seconds: float) -> None:
        if seconds > 0:
            self._sleep(seconds)


def _flipped(body: memoryview, at: int, bit: int) -> memoryview:
    spoilt = bytearray(body)
    spoilt[at] ^= bit
    return memoryview(spoilt).toreadonly()
