"""What to keep: Belady's rule with bypass, for several jobs (pure).

Belady 1966: of what is held, that goes first whose next use is farthest. With bypass: what would itself be the farthest
is not admitted, so an entry that is read soon (read ahead, and not yet used) is never driven out by one that is read
late. An unknown next use is farther than any known one: such entries are admitted while there is room, and go first.

A range is used next by whichever of its jobs comes first. Times of one job are compared as they are; those of different
jobs as seconds, by the measured pace of each. Each entry stands in the order of *one* job, the one that leads to its
next use (``ledger.py``), so a change of pace moves no entry.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

GRACE: float = 0.1
"""In epochs: readers of one job are not all equally far; a use that lies farther behind is over."""

SILENT_S: float = 600.0
"""A job that read nothing for so long has ended, or died."""

_BACK_S = 30.0
_MEASURED = 0.02
_UNKNOWN_PACE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Clock:
    """How far a job is: ``now`` in epochs, which it reached at ``moved_s``; it was last heard of at ``seen_s``.

    ``pace_s`` is in seconds an epoch, 0 while unknown, measured from ``mark`` at ``mark_s`` on.
    """

    now: float
    moved_s: float
    seen_s: float
    pace_s: float
    mark: float
    mark_s: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entry that could go; ``until_s`` is the time to its next use."""

    digest: bytes
    num_bytes: int
    until_s: float


def advanced(clock: Clock | None, now: float, at_s: float) -> Clock:
    """The clock after a read at ``now``; a job that begins again farther back takes its clock along."""
    if clock is None:
        return Clock(now, at_s, at_s, 0.0, now, at_s)
    if now <= clock.now:
        if clock.now - now > GRACE and at_s - clock.moved_s > _BACK_S:
            return Clock(now, at_s, at_s, clock.pace_s, now, at_s)
        return replace(clock, seen_s=at_s)
    moved = replace(clock, now=now, moved_s=at_s, seen_s=at_s)
    if now - clock.mark < _MEASURED:
        return moved
    pace_s = max(0.0, at_s - clock.mark_s) / (now - clock.mark)
    return replace(moved, pace_s=(pace_s + (clock.pace_s or pace_s)) / 2, mark=now, mark_s=at_s)


def is_silent(clock: Clock, at_s: float) -> bool:
    """Whether the job is taken for ended."""
    return at_s - clock.seen_s > SILENT_S


def seconds_until(clock: Clock, next_use: float, at_s: float) -> float:
    """The time to a use; infinite for one that will not come or is over. Slightly negative for one that is late."""
    if next_use < clock.now - GRACE or is_silent(clock, at_s):
        return math.inf
    return (next_use - clock.now) * (clock.pace_s or _UNKNOWN_PACE_S)


def choose(
    short_bytes: int, short_files: int, until_s: float, farthest: Iterable[Candidate]
) -> Sequence[Candidate] | None:
    """Those to evict for an entry that is used in ``until_s``; None: it is not worth it, and nothing goes.

    ``farthest`` yields those held, the farthest next use first; only as many are taken as needed.
    """
    victims: list[Candidate] = []
    if short_bytes <= 0 and short_files <= 0:
        return victims
    if until_s == math.inf:
        return None
    for each in farthest:
        if each.until_s <= until_s:
            return None
        victims.append(each)
        short_bytes -= each.num_bytes
        short_files -= 1
        if short_bytes <= 0 and short_files <= 0:
            return victims
    return None
