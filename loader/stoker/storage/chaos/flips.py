"""Which bytes were flipped on their way."""

from __future__ import annotations

MAX_FLIPS = 10_000
"""So many are remembered; then all are forgotten."""


class Flips:
    """What was flipped comes right when it is read again, as on a real network. The caller keeps other threads out."""

    def __init__(self) -> None:
        self._places: dict[str, list[int]] = {}
        self._num_flips = 0

    def flips(self, name: str, start: int, stop: int, at: int) -> bool:
        """Whether byte ``at`` of the answer ``[start, stop)`` is to be flipped: not if it holds one flipped before."""
        if any(start <= place < stop for place in self._places.get(name, ())):
            return False
        if self._num_flips >= MAX_FLIPS:
            self._places.clear()
            self._num_flips = 0
        self._places.setdefault(name, []).append(at)
        self._num_flips += 1
        return True
