"""Which worker keeps which range for the fleet.

Rendezvous hashing (Thaler and Ravishankar 1998): each member has a weight for each key, and the largest owns it. So a
member that comes takes its share from all others, and one that goes leaves its own to all others; nothing else moves.
Equal members give equal owners in every process.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stoker.storage.store import ObjectRange
from stoker_service.members import Member

_MAX_KNOWN: Final = 1 << 14  # keys: a file is asked for twice, and its neighbours have the same one

NEIGHBOUR_LETTERS: Final = 2
"""Letters at the end of a file's name that do not count: 100 files in a row, if they are numbered, have one owner."""


class Owners:
    """The owners among some members, of whom only the ids count. Safe for threads."""

    def __init__(self, members: Iterable[Member]) -> None:
        self._members = sorted(members, key=lambda member: member.worker_id)
        self._known: dict[str, Member] = {}
        self._keys = np.array([_hashed(member.worker_id) for member in self._members], np.uint64)

    def of(self, key: str) -> Member | None:
        """The owner of a key; None if there is no member."""
        if not self._members:
            return None
        known = self._known.get(key)
        if known is None:
            known = self._members[int(_mixed(self._keys ^ np.uint64(_hashed(key))).argmax())]
            if len(self._known) >= _MAX_KNOWN:
                self._known = {}
            self._known[key] = known
        return known


def key_of(wanted: ObjectRange, *, by_name: bool) -> str:
    """What is hashed of a range.

    The object and where the range begins: a shard's chunks are spread over the fleet, however few shards there are.
    ``by_name``, for objects that are one sample each: the URL without its extension and the last letters before it, so
    that the files of one chunk, which are neighbours by name, are one owner's in most cases, and one call.
    """
    if not by_name:
        return f"{wanted.endpoint}\0{wanted.url}\0{wanted.start}"
    folder, _, name = wanted.url.rpartition("/")
    stem = name.rpartition(".")[0] or name
    return f"{wanted.endpoint}\0{folder}/{stem[:-NEIGHBOUR_LETTERS]}"


def _hashed(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest(), "little")


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014), as in dispatcher/assign.py."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
