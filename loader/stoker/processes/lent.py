"""A worker's arena as the trainer sees it."""

from __future__ import annotations

import mmap
import os
import sys
from collections import deque
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stoker.memory.block import Block, Ending, watch


class LentMemory:
    """Memory of a worker, mapped here for reading and writing, that the worker uses again when all views are gone.

    Views stay valid for as long as they are kept, however the worker ends and whether or not this object is kept.
    :meth:`lend` and :meth:`take_returned` are for one thread; views may be dropped in any. A forked child may read what
    its parent was lent until the parent drops it, and returns nothing.
    """

    def __init__(self, space: NDArray[np.uint8]) -> None:
        self._space = space
        self._address = int(space.ctypes.data)
        self._pid = os.getpid()
        self._lent: dict[int, Ending] = {}
        self._ended: deque[Ending] = deque()  # appended to wherever a view is dropped; see Ending

    @classmethod
    def of(cls, fd: int) -> Self:
        """Map the whole file, and close the descriptor. Raises OSError if it cannot be mapped."""
        try:
            num_bytes = os.fstat(fd).st_size
            # older Pythons keep a descriptor of their own for as long as the mapping is there: one per worker
            options = {"trackfd": False} if sys.version_info >= (3, 13) else {}
            return cls(np.frombuffer(mmap.mmap(fd, num_bytes, **options), np.uint8))
        finally:
            os.close(fd)

    def lend(self, offset: int, num_bytes: int) -> NDArray[np.uint8]:
        """Return a writable view, whose end, with all that was made from it, gives ``offset`` back once.

        Raises ValueError for a range that is not in the memory.
        """
        if offset < 0 or num_bytes < 1 or offset + num_bytes > len(self._space):
            raise ValueError(f"bytes {offset}:{offset + num_bytes} are not in a memory of {len(self._space)} bytes")
        block = Block(self._space, self._address + offset, num_bytes)
        ending = watch(block, self._ended.append, offset, num_bytes)
        self._lent[id(ending)] = ending
        return np.asarray(block)

    def take_returned(self) -> list[int]:
        """Return the offsets whose views have ended since the last call, for the worker to be told."""
        if not self._ended or os.getpid() != self._pid:
            return []
        returned = []
        while self._ended:
            ending = self._ended.popleft()
            del self._lent[id(ending)]
            returned.append(ending.start)
        return returned
