"""Marks in shared memory that say whether bytes are still what was promised."""

from __future__ import annotations

import threading
from typing import Final

import numpy as np
from numpy.typing import NDArray

TABLE_BYTES: Final = 64 << 10
_NUM_SLOTS: Final = TABLE_BYTES // 8
_SLOT_BITS: Final = 13


class Seals:
    """The table of seals at the front of an arena, as its owner writes it. Safe for all threads.

    A seal is a number that is never used again; its lowest bits say where in the table it stands for as long as it
    holds.
    """

    def __init__(self, space: NDArray[np.uint8]) -> None:
        self._table = space[:TABLE_BYTES].view(np.uint64)
        self._lock = threading.Lock()
        self._free = list(range(_NUM_SLOTS))
        self._num_made = 0

    def make(self) -> int | None:
        """Return a seal that holds until it is broken, at least 1; None if too many hold."""
        with self._lock:
            if not self._free:
                return None
            self._num_made += 1
            seal = self._num_made << _SLOT_BITS | self._free.pop()
        self._table[_slot(seal)] = seal
        return seal

    def break_seal(self, seal: int) -> None:
        """Tell readers, before the bytes become others, that they may. Once for each seal."""
        self._table[_slot(seal)] = 0
        with self._lock:
            self._free.append(_slot(seal))


def holds(space: NDArray[np.uint8], seal: int) -> bool:
    """Whether a seal is unbroken, as a reader of the arena sees it.

    Asked after bytes were copied, it tells whether the copy is what was promised: the owner breaks the seal first and
    writes then, and a reader copies first and looks then.
    """
    return seal != 0 and int(space[:TABLE_BYTES].view(np.uint64)[_slot(seal)]) == seal


def _slot(seal: int) -> int:
    return seal & (_NUM_SLOTS - 1)
