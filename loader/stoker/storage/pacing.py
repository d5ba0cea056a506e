"""How many requests per second a store is asked for.

Two parts, both pure: :class:`Pace` finds the rate by additive increase and multiplicative decrease, as congestion
control does (Chiu and Jain 1989), and :class:`Bucket` spaces the requests. One process paces itself by them, and so
does the dispatcher for a whole fleet. Time is an argument, in seconds of any clock that never goes back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

FALL = 0.8
"""Of what the store served when it refused. The rate swings between this and the limit: on average 90 % of it."""

RISE = 0.05
"""Of the rate after a fall, added each second. So the limit is met again some five seconds later."""

LOWEST = 1.0
"""Requests per second, whatever happens: else nobody would learn that the store serves again."""

TOLERATED = 0.01
"""Refusals among requests that change nothing: stores refuse one now and then without any limit being met."""

FORGET_S = 60.0
"""Without a refusal for so long, there is no limit any more."""

BURST_S = 0.1
"""A bucket holds the tokens of so much time, and one at least."""

_ROUNDING = 1e-6  # of a token: a wait too short for the clock to pass would never end

BUSY = 0.1
"""Of the requests, those that waited for a token before the rate counts as what holds them up."""


@dataclass(frozen=True, slots=True)
class PrefixUse:
    """What was asked for below one prefix in ``seconds``.

    ``requests`` were answered; ``throttled`` of them were refused because they were too many; ``waited`` had to wait
    for a token first. ``limit`` is the rate they were held to at the end; 0 is none.
    """

    prefix: str
    requests: float = 0
    throttled: float = 0
    waited: float = 0
    seconds: float = 0.0
    limit: float = 0.0

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.seconds if self.seconds > 0 else 0.0

    @property
    def served_per_s(self) -> float:
        return (self.requests - self.throttled) / self.seconds if self.seconds > 0 else 0.0

    @property
    def is_held_up(self) -> bool:
        """Whether more would have been asked for, had there been tokens."""
        return self.waited > 0 and self.waited >= BUSY * self.requests


@dataclass(frozen=True, slots=True)
class Pace:
    """The decision so far: at most ``rate`` requests per second, rising by ``step`` each second.

    ``lowered_s`` and ``refused_s``: when it was lowered, and when the store refused, for the last time.
    """

    rate: float = math.inf
    step: float = 0.0
    lowered_s: float = -math.inf
    refused_s: float = -math.inf


def paced(pace: Pace, use: PrefixUse, now_s: float, *, hold_s: float) -> Pace:
    """The next pace after a time in which a prefix was used so.

    Refusals within ``hold_s`` of a fall tell of requests that were on their way: they cause no second one.
    """
    if use.throttled > 0:
        pace = replace(pace, refused_s=now_s)
        if use.throttled <= TOLERATED * use.requests or now_s - pace.lowered_s < hold_s:
            return pace
        return lowered(pace, min(pace.rate, use.served_per_s), now_s)
    if now_s - pace.refused_s > FORGET_S:
        return Pace()
    if not use.is_held_up:  # what nobody needs is not tried out
        return pace
    return replace(pace, rate=pace.rate + pace.step * use.seconds)


def lowered(pace: Pace, served_per_s: float, now_s: float) -> Pace:
    """The pace after the store has refused; ``served_per_s`` is what it did serve."""
    rate = max(LOWEST, FALL * served_per_s)
    return replace(pace, rate=rate, step=max(LOWEST, RISE * rate), lowered_s=now_s)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Tokens for requests: ``rate`` more each second, ``burst`` at most. Below 0: promised, and not there yet.

    Promises are numbered, and kept in order: if the rate changes, so does the time of all that are still open.
    """

    rate: float
    at_s: float
    tokens: float = 1.0
    num_promised: int = 0

    @property
    def burst(self) -> float:
        return max(1.0, self.rate * BURST_S)


def promise(bucket: Bucket, now_s: float) -> Bucket:
    """The bucket with one token less; the promise has the number ``num_promised`` of it."""
    filled = at_rate(bucket, bucket.rate, now_s)
    return replace(filled, tokens=filled.tokens - 1.0, num_promised=filled.num_promised + 1)


def wait_for(bucket: Bucket, number: int, now_s: float) -> float:
    """Seconds until the token of a promise is there, as it looks now."""
    filled = at_rate(bucket, bucket.rate, now_s)
    missing = number - filled.num_promised - filled.tokens
    return missing / filled.rate if missing > _ROUNDING else 0.0


def taken_back(bucket: Bucket) -> Bucket:
    """The bucket after one who waited has left: those behind him move up."""
    return replace(bucket, tokens=min(bucket.burst, bucket.tokens + 1.0))


def at_rate(bucket: Bucket, rate: float, now_s: float) -> Bucket:
    """The bucket as it is now, and at this rate from now on."""
    tokens = bucket.tokens + max(0.0, now_s - bucket.at_s) * bucket.rate
    changed = replace(bucket, rate=rate, at_s=max(bucket.at_s, now_s))
    return replace(changed, tokens=min(tokens, bucket.burst, changed.burst))
