"""The large buffers of one result on their way into a message."""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stoker.batch.pool import BufferPool
from stoker.memory.arena import Arena
from stoker.memory.block import Block
from stoker.processes.results.layout import INLINE, Place

LARGE_BYTES: Final = 32 << 10
"""From here on a buffer goes out of band. Below, copying it through the socket costs less than lending a place in the
arena and taking it back, and its own small memory is freed without regard to the rest of the message."""


class Outgoing:
    """Collects the large buffers of one result, in the order of the pickle. For one thread."""

    def __init__(self, pool: BufferPool, arena: Arena | None) -> None:
        self._pool = pool
        self._arena = arena
        self.places: Final[list[Place]] = []
        self.inline: Final[list[bytes | memoryview]] = []
        self.held: Final[list[tuple[int, Any]]] = []
        """Offsets in the arena, each with what keeps the memory there."""

    def add(self, address: int, num_bytes: int, owner: Any) -> None:
        """Add bytes that stay where they are for as long as ``owner`` is kept.

        They are copied if they do not lie in the arena and it has room. If it has none, they go inline, and what is
        sent keeps ``owner``.
        """
        offset = None
        if self._arena is not None:
            offset = self._arena.offset_at(address, num_bytes)
            if offset is None:
                room = self.room(num_bytes)
                offset = self._arena.offset_at(address_of(room), num_bytes)
                if offset is not None:
                    ctypes.memmove(address_of(room), address, num_bytes)  # other threads run meanwhile
                    owner = room
        if offset is None:
            self.places.append(Place(INLINE, num_bytes))
            self.inline.append(np.asarray(Block(owner, address, num_bytes)).data)
        else:
            self.places.append(Place(offset, num_bytes))
            self.held.append((offset, owner))

    def room(self, num_bytes: int) -> NDArray[np.uint8]:
        """Return memory for what is then added: of the arena, if there is room."""
        return self._pool.take(num_bytes)


def address_of(array: NDArray[Any]) -> int:
    """Where an array's first element lies in memory."""
    return int(array.ctypes.data)
