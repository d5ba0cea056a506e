"""Decides which requests are made for the ranges that are wanted: large ones are cut, neighbours are joined."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stoker.storage.store import ObjectRange

JOIN_GAP_BYTES = 64 << 10
"""Bytes between two ranges that are read and thrown away rather than making a request more; 1 ms at 64 MB/s."""

JOIN_MAX_BYTES = 8 << 20


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


@dataclass(frozen=True, slots=True)
class Joined:
    """One request: ``whole`` covers the ranges with the numbers in ``members``, in ascending order of their start."""

    whole: ObjectRange
    members: tuple[int, ...]


def join(
    ranges: Sequence[ObjectRange], *, gap_bytes: int = JOIN_GAP_BYTES, max_bytes: int = JOIN_MAX_BYTES
) -> list[Joined]:
    """The requests for ``ranges``, each range in one of them.

    Ranges of one version of an object are joined that overlap or lie at most ``gap_bytes`` apart, as long as the
    request stays within ``max_bytes``; a range that is larger by itself, or is wanted twice, is one request all the
    same. In the order of the first range of each request as they were given.
    """
    by_place = sorted(range(len(ranges)), key=lambda number: _place(ranges[number]))
    found: list[Joined] = []
    for number in by_place:
        wanted = ranges[number]
        last = found[-1] if found else None
        if last is not None and _may_join(last.whole, wanted, gap_bytes, max_bytes):
            whole = replace(last.whole, stop=max(last.whole.stop, wanted.stop))
            found[-1] = Joined(whole, (*last.members, number))
        else:
            found.append(Joined(wanted, (number,)))
    return sorted(found, key=lambda joined: min(joined.members))


def _place(wanted: ObjectRange) -> tuple[str, str, str, int, int]:
    return wanted.endpoint, wanted.url, wanted.version, wanted.start, wanted.stop


def _may_join(whole: ObjectRange, wanted: ObjectRange, gap_bytes: int, max_bytes: int) -> bool:
    if _place(whole)[:3] != _place(wanted)[:3] or wanted.start > whole.stop + gap_bytes:
        return False
    return wanted.stop <= whole.stop or wanted.stop - whole.start <= max_bytes
