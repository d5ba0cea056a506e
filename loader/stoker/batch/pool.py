"""Warm buffers for batches, taken back when nothing refers to them any more."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNMENT_BYTES = 64
_GRAIN_BYTES = 4096


@dataclass(frozen=True, slots=True)
class PoolStats:
    """``num_reused`` of ``num_taken`` buffers were warm; ``idle_bytes`` wait in the pool for the next taker."""

    num_taken: int
    num_reused: int
    idle_bytes: int


class BufferPool:
    """Plain memory in blocks that are used again, because fresh pages cost more than the copy into them.

    A buffer is an ordinary array. It goes back by itself when it and everything made from it (views, Arrow buffers,
    torch tensors, batches) are gone, whichever thread drops the last of them, and stays valid for as long as one of
    them is kept: the pool hands out more, it never takes away. No descriptors are held. Safe for all threads.
    """

    def __init__(self, max_idle_bytes: int = 256 << 20) -> None:
        self._max_idle_bytes = max_idle_bytes
        self._lock = threading.Lock()
        self._returned: deque[NDArray[np.uint8]] = deque()  # appended to without the lock; see _Lease
        self._idle: deque[NDArray[np.uint8]] = deque()  # least recently used first
        self._idle_bytes = 0
        self._num_taken = 0
        self._num_reused = 0

    def take(self, num_bytes: int) -> NDArray[np.uint8]:
        """Return a buffer of ``num_bytes``, its first byte on a 64-byte boundary, its content undefined."""
        size = -(-max(num_bytes, 1) // _GRAIN_BYTES) * _GRAIN_BYTES + ALIGNMENT_BYTES
        with self._lock:
            dropped = self._sort_in()
            block = self._pop(size)
            self._num_taken += 1
            self._num_reused += block is not None
        del dropped  # memory is given back outside the lock
        if block is None:
            block = np.empty(size, np.uint8)
        offset = -block.ctypes.data % ALIGNMENT_BYTES
        return np.asarray(_Lease(block, self))[offset : offset + num_bytes]

    def clear(self) -> None:
        """Give all idle buffers back to the system."""
        with self._lock:
            dropped = [*self._idle, *self._returned]
            self._idle.clear()
            self._returned.clear()
            self._idle_bytes = 0
        del dropped

    @property
    def stats(self) -> PoolStats:
        with self._lock:
            dropped = self._sort_in()
            stats = PoolStats(self._num_taken, self._num_reused, self._idle_bytes)
        del dropped
        return stats

    def _pop(self, size: int) -> NDArray[np.uint8] | None:
        """Take the most recently used idle block of exactly this size: it is the likeliest to be cached."""
        for i in range(len(self._idle) - 1, -1, -1):
            if len(self._idle[i]) == size:
                block = self._idle[i]
                del self._idle[i]
                self._idle_bytes -= size
                return block
        return None

    def _sort_in(self) -> list[NDArray[np.uint8]]:
        """Move what came back to the idle blocks; return those that are too much."""
        while self._returned:
            block = self._returned.popleft()
            self._idle.append(block)
            self._idle_bytes += len(block)
        dropped = []
        while self._idle_bytes > self._max_idle_bytes:
            dropped.append(self._idle.popleft())
            self._idle_bytes -= len(dropped[-1])
        return dropped

    def _take_back(self, block: NDArray[np.uint8]) -> None:
        """Accept a block from whatever thread dropped it, even one that is inside :meth:`take` (a garbage collection).

        So this must not wait for the lock; whoever holds it, or the next taker, sorts the block in.
        """
        self._returned.append(block)
        if self._lock.acquire(blocking=False):
            try:
                dropped = self._sort_in()
            finally:
                self._lock.release()
            del dropped


class _Lease:
    """The owner that NumPy sees at the end of every chain of views; its end is the end of the buffer's use."""

    __slots__ = ("__array_interface__", "_block", "_pool")

    def __init__(self, block: NDArray[np.uint8], pool: BufferPool) -> None:
        self._block = block
        self._pool = pool
        self.__array_interface__: dict[str, Any] = {
            "data": (block.ctypes.data, False),
            "shape": block.shape,
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self) -> None:
        self._pool._take_back(self._block)
