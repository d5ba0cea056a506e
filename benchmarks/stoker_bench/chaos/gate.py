"""What a profile has in store for each request: refused, delayed, spoilt."""

from __future__ import annotations

import enum
import itertools
from typing import Final

from stoker.storage.chaos.flips import Flips
from stoker.storage.chaos.limits import Limits
from stoker.storage.chaos.profile import Fate, Fault, Profile, draw

MAX_KEYS: Final = 10_000
"""So many access keys are remembered; then all are forgotten, that is, as good as new."""

_WITH_BODY: Final = frozenset(Fault)
_LISTING: Final = _WITH_BODY - {Fault.FLIP}
_WITHOUT_BODY: Final = frozenset({Fault.FAIL})


class Refusal(enum.Enum):
    """Why a request gets no answer of its own."""

    THROTTLED = "throttled"
    EXPIRED = "expired"


class Gate:
    """One profile at work, from its request number 0. For one thread; the caller brings the time."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self._numbers = itertools.count()
        self._limits = Limits()
        self._flips = Flips()
        self._first_seen_s: dict[str, float] = {}

    def refusal(self, name: str, access_key: str, now_s: float) -> Refusal | None:
        """Whether a request is turned away; ``name`` is a path or prefix, ``access_key`` may be empty."""
        if not self._limits.lets_through(self.profile, name, now_s):
            return Refusal.THROTTLED
        if access_key and self.profile.expire_s:
            if len(self._first_seen_s) >= MAX_KEYS:
                self._first_seen_s.clear()
            if now_s - self._first_seen_s.setdefault(access_key, now_s) >= self.profile.expire_s:
                return Refusal.EXPIRED
        return None

    def fate(self, method: str, *, is_object: bool) -> Fate:
        """The fate of the next request, as it can befall one of this kind: listings are not flipped, and so on."""
        fate = draw(self.profile, next(self._numbers))
        match method, is_object:
            case "GET", True:
                possible = _WITH_BODY
            case "GET", False:
                possible = _LISTING
            case _:
                possible = _WITHOUT_BODY
        return fate if fate.fault in possible else Fate(fate.latency_s)

    def for_body(self, fate: Fate, name: str, start: int, num_bytes: int) -> Fate:
        """What is left of a fate for a body that begins at ``start`` of its object; of unknown length if below 0."""
        match fate.fault:
            case Fault.CUT | Fault.FLIP if num_bytes <= 0:
                return Fate(fate.latency_s)
            case Fault.FLIP:
                at = start + fate.byte(self.profile, num_bytes)
                return fate if self._flips.flips(name, start, start + num_bytes, at) else Fate(fate.latency_s)
            case _:
                return fate
