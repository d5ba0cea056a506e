"""How a store misbehaves, and what that means for its n-th request.

A profile is a value; ``draw`` is a pure function of profile and request number, so the same seed gives the same fates,
whatever runs beside. In text a profile is a name, with values that differ after it: ``gcs,seed=3,latency_ms=80``.
"""

from __future__ import annotations

import difflib
import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Final

from stoker.errors import SpecError
from stoker.randomness import key64


class Fault(enum.Enum):
    """What goes wrong with one answer; each is also the name of its share of the answers in a profile."""

    NONE = "none"
    CUT = "cut"
    STALL = "stall"
    EMPTY = "empty"
    FLIP = "flip"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Profile:
    """Latency, limits and faults; every zero is "not at all".

    Time to the first byte is lognormal with the median ``latency_ms`` and the width ``sigma``; the slowest ``tail`` of
    the answers follow a Pareto law (alpha 1) instead, up to ``tail_ms``. ``mb_per_s`` is the bandwidth of one answer.

    ``rate`` is the requests per second for one folder, ``burst`` how many may come at once (one second's if not
    given); beyond, the answer is the status ``throttle``. Credentials are good for ``expire_s``. A listing shows
    ``page`` names at a time.

    Shares of the answers: ``cut`` (the connection breaks in the body), ``stall`` (nothing after the headers for
    ``stall_s``), ``empty`` (200 without a body), ``flip`` (one bit is wrong; right when it is read again) and ``fail``
    (500). Cut and flip come at byte ``at`` where that is given, else anywhere.
    """

    seed: int = 0
    latency_ms: float = 0.0
    tail_ms: float = 0.0
    tail: float = 0.01
    sigma: float = 0.25
    mb_per_s: float = 0.0
    rate: float = 0.0
    burst: float = 0.0
    throttle: int = 503
    cut: float = 0.0
    stall: float = 0.0
    empty: float = 0.0
    flip: float = 0.0
    fail: float = 0.0
    at: int = -1
    stall_s: float = 30.0
    expire_s: float = 0.0
    page: int = 0

    def __post_init__(self) -> None:
        for name in ("tail", *_SHARES):
            if not 0 <= getattr(self, name) <= 1:
                raise SpecError(f"chaos: {name} is a share from 0 to 1, found {getattr(self, name)}")
        if sum(getattr(self, name) for name in _SHARES) > 1:
            raise SpecError(f"chaos: {', '.join(_SHARES)} are shares of the same answers; their sum is above 1")
        for name in _AMOUNTS:
            if not 0 <= getattr(self, name) < math.inf:
                raise SpecError(f"chaos: {name} should be 0 or more, found {getattr(self, name)}")
        if self.throttle not in (429, 503):
            raise SpecError(f"chaos: throttle is the status 429 or 503, found {self.throttle}")
        if 0 < self.tail_ms < self.latency_ms:
            raise SpecError(
                f"chaos: tail_ms={self.tail_ms:g} is the slowest answer, below latency_ms={self.latency_ms:g}"
            )


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens to one request: its latency, and where in the body (0 ≤ ``where`` < 1) its fault strikes."""

    latency_s: float
    fault: Fault = Fault.NONE
    where: float = 0.0

    def byte(self, profile: Profile, num_bytes: int) -> int:
        """The byte of a body of this length at which it is cut or flipped; 0 where it has none."""
        index = profile.at if profile.at >= 0 else int(self.where * num_bytes)
        return max(0, min(index, num_bytes - 1))

    def bit(self) -> int:
        """The bit to flip, as a mask."""
        return 1 << int(self.where * 2**20) % 8


_FAULTS: Final = tuple(fault for fault in Fault if fault is not Fault.NONE)
_SHARES: Final = tuple(fault.value for fault in _FAULTS)
_AMOUNTS: Final = ("latency_ms", "tail_ms", "sigma", "mb_per_s", "rate", "burst", "stall_s", "expire_s", "page")
_NORMAL: Final = NormalDist()

PROFILES: Final[Mapping[str, Profile]] = {
    "none": Profile(),
    "gcs": Profile(latency_ms=55, tail_ms=2000, throttle=429, page=1000),
    "s3": Profile(latency_ms=30, tail_ms=1000, page=1000),
    "s3-far": Profile(latency_ms=160, tail_ms=2000, page=1000),
    "flaky": Profile(latency_ms=5, cut=0.03, empty=0.02, flip=0.01, fail=0.03, stall=0.002, page=100),
    "throttled": Profile(latency_ms=20, rate=50),
}


def parse(text: str) -> Profile:
    """Read ``name,key=value,…``; the name may be left out. Raises SpecError with what was expected."""
    name, *changes = [part.strip() for part in text.split(",")]
    if "=" in name:
        name, changes = "none", [name, *changes]
    if name not in PROFILES:
        raise SpecError(f"chaos: no profile {name!r}; {_nearest(name, PROFILES)}")
    given: dict[str, Any] = dict(_change(part) for part in changes)
    return replace(PROFILES[name], **given)


def draw(profile: Profile, request_number: int) -> Fate:
    """The fate of the n-th request."""
    latency_s = _latency_s(profile, _uniform(profile.seed, request_number, 0))
    chance = _uniform(profile.seed, request_number, 1)
    for fault in _FAULTS:
        chance -= getattr(profile, fault.value)
        if chance < 0:
            return Fate(latency_s, fault, _uniform(profile.seed, request_number, 2))
    return Fate(latency_s)


def transfer_s(profile: Profile, num_bytes: int) -> float:
    """How long a body takes at the bandwidth of the profile."""
    return num_bytes / (profile.mb_per_s * 1e6) if profile.mb_per_s else 0.0


def _uniform(seed: int, request_number: int, use: int) -> float:
    return (key64(seed, use, request_number, 0) >> 11) * 2.0**-53


def _latency_s(profile: Profile, uniform: float) -> float:
    """The quantile of the latency: lognormal body, then a bounded Pareto tail that begins where the body ends."""
    if not profile.latency_ms:
        return 0.0
    has_tail = profile.tail > 0 and profile.tail_ms > 0
    body = 1 - profile.tail if has_tail else 1.0
    if uniform < body:
        return profile.latency_ms * _factor(profile.sigma, uniform) / 1e3
    lowest_ms = min(profile.latency_ms * _factor(profile.sigma, body), profile.tail_ms)
    within = (uniform - body) / profile.tail
    return 1e-3 / (1 / lowest_ms - within * (1 / lowest_ms - 1 / profile.tail_ms))


def _factor(sigma: float, uniform: float) -> float:
    return math.exp(sigma * _NORMAL.inv_cdf(min(max(uniform, 1e-9), 1 - 1e-9)))


def _change(part: str) -> tuple[str, int | float]:
    name, equals, value = (piece.strip() for piece in part.partition("="))
    kinds = _kinds()
    if name not in kinds:
        raise SpecError(f"chaos: no setting {name!r}; {_nearest(name, kinds)}")
    kind = kinds[name]
    try:
        return name, kind(value)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        found = repr(value) if equals else "nothing"
        raise SpecError(f"chaos: {name} should be {wanted}, such as {name}=3, found {found}") from None


@lru_cache(maxsize=1)
def _kinds() -> Mapping[str, type[int | float]]:
    return {entry.name: int if entry.type == "int" else float for entry in fields(Profile)}


def _nearest(name: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
