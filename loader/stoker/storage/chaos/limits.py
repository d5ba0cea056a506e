"""How many requests a second a store lets through for each folder."""

from __future__ import annotations

from dataclasses import dataclass

from stoker.storage.chaos.profile import Profile

MAX_FOLDERS = 10_000
"""So many folders are remembered; then all are forgotten, that is, may begin with a burst again."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What is left for one folder: ``tokens`` at the time ``at_s``."""

    tokens: float
    at_s: float


def take(profile: Profile, tokens: Tokens | None, now_s: float) -> tuple[Tokens, bool]:
    """What is left after a request, and whether it is let through; None is a folder that was not asked before."""
    full = max(1.0, profile.burst or profile.rate)
    if tokens is None:
        tokens = Tokens(full, now_s)
    filled = min(full, tokens.tokens + (now_s - tokens.at_s) * profile.rate)
    return (Tokens(filled - 1, now_s), True) if filled >= 1 else (Tokens(filled, now_s), False)


class Limits:
    """The token buckets of all folders. The caller brings the time, and keeps other threads out."""

    def __init__(self) -> None:
        self._tokens: dict[str, Tokens] = {}

    def lets_through(self, profile: Profile, name: str, now_s: float) -> bool:
        """Count a request for the object or folder ``name``, a path or URL."""
        if not profile.rate:
            return True
        folder = name.rpartition("/")[0]
        if len(self._tokens) >= MAX_FOLDERS and folder not in self._tokens:
            self._tokens.clear()
        self._tokens[folder], is_let_through = take(profile, self._tokens.get(folder), now_s)
        return is_let_through
