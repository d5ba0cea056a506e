"""How many requests a store is asked for by the whole fleet, and each worker's share.

For each prefix the rate is found as one process does it (:mod:`stoker.storage.pacing`), from what all workers tell, and
shared out by what each of them needs: who wants little leaves the rest to the others. Soft: a dispatcher that starts
anew takes over the rates that workers are held to.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stoker.storage.pacing import LOWEST, RISE, Pace, PrefixUse, paced
from stoker_service.dispatcher.model import Settings, WorkerId

MAX_PREFIXES = 256
"""That have a rate, or could need one; those used longest ago are forgotten first."""

MAX_REPORTED = 64
"""Of one beat."""

START_BEATS = 2
"""After its start a dispatcher listens for so long before it decides: it would take one worker for the fleet."""

HOLD_BEATS = 2.5
"""A share reaches its worker with the next beat, and the one after tells what came of it."""

HEADROOM = 1.25
"""What a worker may grow by in a beat without being held up."""

EAGER = 2.0
"""The same for one that is held up: it wants more than it has, nobody knows how much."""

RESERVE = 0.1
"""Of an equal share, kept for who asks for nothing yet: a first request must not wait for the next beat."""


@dataclass(slots=True)
class _Prefix:
    """``heard`` is what came since the last decision, ``latest`` each worker's last word and its time."""

    name: str
    pace: Pace = field(default_factory=Pace)
    heard: dict[WorkerId, PrefixUse] = field(default_factory=dict)
    latest: dict[WorkerId, tuple[float, PrefixUse]] = field(default_factory=dict)
    shares: dict[WorkerId, float] = field(default_factory=dict)
    told_s: float = -math.inf
    has_refused: bool = False

    @property
    def is_limited(self) -> bool:
        return self.pace.rate < math.inf


class Budgets:
    """The rates of the fleet. A beat costs the same however many workers there are; a decision does not."""

    def __init__(self, settings: Settings, now_s: float) -> None:
        self._settings = settings
        self._decided_s = now_s
        self._starts_s = now_s + START_BEATS * settings.beat_s
        self._is_new = True
        self._prefixes: dict[str, _Prefix] = {}  # used longest ago first

    def beat(self, worker_id: WorkerId, uses: Sequence[PrefixUse], now_s: float) -> None:
        """Take in what a worker tells."""
        for use in uses[:MAX_REPORTED]:
            prefix = self._prefixes.pop(use.prefix, None) or _Prefix(use.prefix)
            self._prefixes[use.prefix] = prefix
            before = prefix.heard.get(worker_id)
            prefix.heard[worker_id] = use if before is None else _added(before, use)
            prefix.latest[worker_id] = (now_s, use)
            prefix.told_s = now_s
            prefix.has_refused = prefix.has_refused or use.throttled > 0
        while len(self._prefixes) > MAX_PREFIXES:
            del self._prefixes[next(iter(self._prefixes))]

    def decide(self, workers: Collection[WorkerId], now_s: float) -> list[str]:
        """Look once a beat at what came; ``workers`` may ask for something. Returns what people should know."""
        seconds = now_s - self._decided_s
        if now_s < self._starts_s or seconds < self._settings.beat_s:
            return []
        self._decided_s = now_s
        news: list[str] = []
        for prefix in list(self._prefixes.values()):
            if prefix.is_limited or prefix.has_refused or self._is_new:
                news += self._look_at(prefix, workers, seconds, now_s)
            elif now_s - prefix.told_s > self._settings.dead_s:
                del self._prefixes[prefix.name]
            prefix.heard, prefix.has_refused = {}, False
        self._is_new = False
        return news

    def limits_for(self, worker_id: WorkerId) -> dict[str, float]:
        """The worker's shares, by prefix; what has no limit is not there."""
        return {name: prefix.shares[worker_id] for name, prefix in self._prefixes.items() if worker_id in prefix.shares}

    def _look_at(self, prefix: _Prefix, workers: Collection[WorkerId], seconds: float, now_s: float) -> list[str]:
        was_limited = prefix.is_limited
        uses = self._uses(prefix, now_s)
        self._pace(prefix, uses, seconds, now_s)
        prefix.shares = share_out(prefix.pace.rate, _demands(prefix, uses, workers)) if prefix.is_limited else {}
        return _news(prefix, was_limited=was_limited)

    def _uses(self, prefix: _Prefix, now_s: float) -> dict[WorkerId, PrefixUse]:
        """What each worker tells, or told just before if its beat comes a little late."""
        oldest_s = now_s - self._settings.dead_s
        prefix.latest = {worker: told for worker, told in prefix.latest.items() if told[0] >= oldest_s}
        before = {worker: replace(use, throttled=0) for worker, (_, use) in prefix.latest.items()}
        return before | prefix.heard

    def _pace(self, prefix: _Prefix, uses: Mapping[WorkerId, PrefixUse], seconds: float, now_s: float) -> None:
        if self._is_new and any(use.limit for use in uses.values()):
            rate = sum(use.limit or use.requests_per_s for use in uses.values())
            prefix.pace = Pace(rate, max(LOWEST, RISE * rate), lowered_s=now_s, refused_s=now_s)
        else:
            total = _total(prefix.name, uses.values(), seconds)
            prefix.pace = paced(prefix.pace, total, now_s, hold_s=HOLD_BEATS * self._settings.beat_s)


def share_out(rate: float, demands: Mapping[WorkerId, float]) -> dict[WorkerId, float]:
    """Max-min fair shares: nobody gets more than he demands while another lacks; what is left over, in equal parts."""
    shares: dict[WorkerId, float] = {}
    left, num_left = rate, len(demands)
    for worker, demand in sorted(demands.items(), key=lambda item: (item[1], item[0])):
        shares[worker] = min(demand, left / num_left)
        left -= shares[worker]
        num_left -= 1
    extra = max(0.0, left) / len(shares) if shares else 0.0
    return {worker: share + extra for worker, share in shares.items()}


def _demands(
    prefix: _Prefix, uses: Mapping[WorkerId, PrefixUse], workers: Collection[WorkerId]
) -> dict[WorkerId, float]:
    least = RESERVE * prefix.pace.rate / max(1, len(workers))
    return {worker: max(least, _demand(uses.get(worker), prefix.shares.get(worker, 0.0))) for worker in workers}


def _demand(use: PrefixUse | None, share: float) -> float:
    if use is None:
        return 0.0
    return EAGER * max(use.requests_per_s, share) if use.is_held_up else HEADROOM * use.requests_per_s


def _total(name: str, uses: Iterable[PrefixUse], seconds: float) -> PrefixUse:
    """All workers as one: they beat at different times, so their rates are added, not their counts."""
    requests = throttled = waited = 0.0
    for use in uses:
        scale = seconds / use.seconds if use.seconds > 0 else 0.0
        requests += scale * use.requests
        throttled += scale * use.throttled
        waited += scale * use.waited
    return PrefixUse(name, requests, throttled, waited, seconds)


def _added(before: PrefixUse, use: PrefixUse) -> PrefixUse:
    return replace(
        use,
        requests=before.requests + use.requests,
        throttled=before.throttled + use.throttled,
        waited=before.waited + use.waited,
        seconds=before.seconds + use.seconds,
    )


def _news(prefix: _Prefix, *, was_limited: bool) -> list[str]:
    if prefix.is_limited and not was_limited:
        return [
            f"{prefix.name}: the store asks for fewer requests; the workers keep to {prefix.pace.rate:.0f} a second"
        ]
    if was_limited and not prefix.is_limited:
        return [f"{prefix.name}: the store has refused nothing for long; its requests are not limited any more"]
    return []
