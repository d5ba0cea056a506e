"""The rates that one process keeps to, one for each prefix that it reads."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from stoker.storage.fork_news import tell_after_fork
from stoker.storage.pacing import RISE, Bucket, Pace, PrefixUse, at_rate, paced, promise, taken_back, wait_for
from stoker.storage.prefixes import cut_to, depth_of, folder_of

MAX_PREFIXES = 64
"""Remembered by a process. Where there are more folders, those further up count as one prefix."""

MAX_REPORTED = 16
"""Told in one report: those with a limit first, then those with the most requests."""

WINDOW_S = 1.0
HOLD_S = 1.5
TOLD_S = 10.0
"""What a dispatcher has told holds for so long: one that is gone limits nobody for ever."""

_ANY_DEPTH = 1000


@dataclass(slots=True)
class _Count:
    """What happened since ``begin_s``; None: since nothing has happened yet."""

    begin_s: float | None = None
    requests: int = 0
    throttled: int = 0
    waited: int = 0


@dataclass(slots=True)
class _Prefix:
    """``window`` is what the own pace decides by, ``untold`` what the next report tells."""

    name: str
    window: _Count = field(default_factory=_Count)
    untold: _Count = field(default_factory=_Count)
    pace: Pace = field(default_factory=Pace)
    bucket: Bucket | None = None
    num_promised: int = 0
    """By buckets before this one: numbers go on, so that nobody waits for another limit's turn."""

    def begin(self, now_s: float) -> None:
        """Counts begin with the first request, so that a pause before it is not counted."""
        for count in (self.window, self.untold):
            count.begin_s = now_s if count.begin_s is None else count.begin_s


@dataclass(frozen=True, slots=True)
class Turn:
    """The right to one request, once its time has come; at once if ``number`` is 0."""

    prefix: _Prefix
    number: int


class RateLimits:
    """Spaces the requests of this process; safe for many threads.

    Nothing is limited before the first refusal. After it the process finds the rate of that prefix itself, see
    :mod:`stoker.storage.pacing`, unless a dispatcher has told it by :meth:`set`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._prefixes: OrderedDict[str, _Prefix] = OrderedDict()  # least recently used first
        self._max_depth = _ANY_DEPTH
        self._told: dict[str, float] = {}
        self._told_s = -math.inf
        tell_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()

    def ask(self, url: str) -> Turn:
        """Queue for a request; it may go out when :meth:`wait_for` says 0, and is to be given up or answered."""
        with self._lock:
            now_s = self._clock()
            prefix = self._prefix_of(url)
            self._close_window(prefix, now_s)
            prefix.begin(now_s)
            bucket = self._bucket(prefix, now_s)
            if bucket is None:
                return Turn(prefix, 0)
            prefix.bucket = promise(bucket, now_s)
            if prefix.bucket.tokens < 0:
                prefix.window.waited += 1
                prefix.untold.waited += 1
            return Turn(prefix, prefix.bucket.num_promised)

    def wait_for(self, turn: Turn) -> float:
        """Seconds until the request may go out, as it looks now; the rate may change meanwhile."""
        with self._lock:
            now_s = self._clock()
            bucket = self._bucket(turn.prefix, now_s) if turn.number else None
            return 0.0 if bucket is None else wait_for(bucket, turn.number, now_s)

    def give_up(self, turn: Turn) -> None:
        """Leave the queue without a request."""
        with self._lock:
            if turn.prefix.bucket is not None and turn.number:
                turn.prefix.bucket = taken_back(turn.prefix.bucket)

    def answered(self, url: str, *, is_throttled: bool) -> None:
        """Tell how a request ended: refused because there are too many, or in any other way."""
        with self._lock:
            now_s = self._clock()
            prefix = self._prefix_of(url)
            prefix.begin(now_s)
            for count in (prefix.window, prefix.untold):
                count.requests += 1
                count.throttled += is_throttled
            self._close_window(prefix, now_s)

    def report(self) -> list[PrefixUse]:
        """What was asked for since the last report, for the dispatcher."""
        with self._lock:
            now_s = self._clock()
            found = [self._use(prefix, prefix.untold, now_s) for prefix in self._prefixes.values()]
            for prefix in self._prefixes.values():
                prefix.untold = _Count(begin_s=now_s)
        matter = [use for use in found if use.requests or use.waited or use.limit]
        matter.sort(key=lambda use: (use.limit == 0.0 and use.throttled == 0, -use.requests))
        return matter[:MAX_REPORTED]

    def set(self, limits: Mapping[str, float]) -> None:
        """Keep to these requests per second, as the dispatcher told; for other prefixes the own pace counts again."""
        with self._lock:
            self._told_s = self._clock()
            self._told = {prefix: rate for prefix, rate in limits.items() if 0.0 < rate < math.inf}

    def limit_of(self, url: str) -> float:
        """The requests per second that hold for ``url`` now; ``inf`` without a limit."""
        with self._lock:
            return self._rate(self._prefix_of(url), self._clock())

    def _prefix_of(self, url: str) -> _Prefix:
        name = cut_to(folder_of(url), self._max_depth)
        found = self._prefixes.get(name)
        if found is None:
            if len(self._prefixes) >= MAX_PREFIXES:
                name = self._make_room(name)
            found = self._prefixes.setdefault(name, _Prefix(name))
        self._prefixes.move_to_end(name)
        return found

    def _make_room(self, name: str) -> str:
        """Forget the deepest folders, and count what lies in them further up from now on; the new one's name."""
        deepest = max(depth_of(known) for known in (*self._prefixes, name))
        if deepest == 0:  # as many buckets
            self._prefixes.popitem(last=False)
            return name
        self._max_depth = deepest - 1
        for known in [known for known in self._prefixes if depth_of(known) > self._max_depth]:
            del self._prefixes[known]
        return cut_to(name, self._max_depth)

    def _bucket(self, prefix: _Prefix, now_s: float) -> Bucket | None:
        """The prefix's bucket at the rate that holds now; None without a limit."""
        rate = self._rate(prefix, now_s)
        if rate == math.inf:
            if prefix.bucket is not None:
                prefix.num_promised = prefix.bucket.num_promised
                prefix.bucket = None
        elif prefix.bucket is None:
            prefix.bucket = Bucket(rate, now_s, num_promised=prefix.num_promised)
        elif prefix.bucket.rate != rate:
            prefix.bucket = at_rate(prefix.bucket, rate, now_s)
        return prefix.bucket

    def _rate(self, prefix: _Prefix, now_s: float) -> float:
        return self._told_rate(prefix, now_s) or prefix.pace.rate

    def _told_rate(self, prefix: _Prefix, now_s: float) -> float | None:
        return self._told.get(prefix.name) if now_s - self._told_s <= TOLD_S else None

    def _close_window(self, prefix: _Prefix, now_s: float) -> None:
        """Look at what happened if a window has passed; the next begins with the next request."""
        if prefix.window.begin_s is None or now_s - prefix.window.begin_s < WINDOW_S:
            return
        told = self._told_rate(prefix, now_s)
        if told is not None:  # the dispatcher decides; should it fall silent, we go on from its rate
            prefix.pace = replace(prefix.pace, rate=told, step=told * RISE, lowered_s=now_s)
        prefix.pace = paced(prefix.pace, self._use(prefix, prefix.window, now_s), now_s, hold_s=HOLD_S)
        prefix.window = _Count()

    def _use(self, prefix: _Prefix, count: _Count, now_s: float) -> PrefixUse:
        rate = self._rate(prefix, now_s)
        return PrefixUse(
            prefix.name,
            count.requests,
            count.throttled,
            count.waited,
            now_s - count.begin_s if count.begin_s is not None else 0.0,
            0.0 if rate == math.inf else rate,
        )
