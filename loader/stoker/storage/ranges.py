"""Decides how a large range is cut into requests."""

from __future__ import annotations

import itertools
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class ByteRange:
    """The bytes ``[start, stop)`` of one object."""

    start: int
    stop: int

    @property
    def num_bytes(self) -> int:
        return self.stop - self.start


def split(whole: ByteRange, max_bytes: int) -> list[ByteRange]:
    """The fewest ranges of at most ``max_bytes`` that cover ``whole`` in order; sizes differ by one byte at most."""
    num_parts = max(1, -(-whole.num_bytes // max_bytes))
    cuts = [whole.start + whole.num_bytes * part // num_parts for part in range(num_parts + 1)]
    return [ByteRange(start, stop) for start, stop in itertools.pairwise(cuts)]
