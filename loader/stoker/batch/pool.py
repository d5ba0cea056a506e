"""Warm buffers for batches, taken back when nothing refers to them any more."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

ALIGNMENT_BYTES = 64
_GRAIN_BYTES = 4096

Allocate: TypeAlias = Callable[[int], NDArray[np.uint8] | None]
"""Makes a block of so many bytes, or None if it has none left; any thread may call."""


def fresh(num_bytes: int) -> NDArray[np.uint8]:
    """Ordinary memory."""
    return np.empty(num_bytes, np.uint8)


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

    ``allocate`` makes the blocks, of shared or pinned memory, say. Where it has none left, ordinary memory stands in,
    which is not used again, so that the next taker asks for the better kind.
    """

    def __init__(self, max_idle_bytes: int = 256 << 20, allocate: Allocate = fresh) -> None:
        self._max_idle_bytes = max_idle_bytes
        self._allocate = allocate
        self._lock = threading.Lock()
        self._leased: dict[int, _Return] = {}
        self._returned: deque[_Return] = deque()  # appended to without the lock; see _Return
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
            block = self._allocate(size)
        if block is None:
            self.clear()  # idle blocks of other sizes may be what it lacks
            block = self._allocate(size)
        if block is None:
            return _aligned(fresh(size), num_bytes)
        lease = _Lease(block)
        ending = _Return(lease, self._returned.append)
        ending.block = block
        self._leased[id(ending)] = ending
        return _aligned(np.asarray(lease), num_bytes)

    def clear(self) -> None:
        """Give all idle buffers back to the system."""
        with self._lock:
            dropped = self._sort_in()
            dropped += self._idle
            self._idle.clear()
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
            ending = self._returned.popleft()
            del self._leased[id(ending)]
            self._idle.append(ending.block)
            self._idle_bytes += len(ending.block)
        dropped = []
        while self._idle_bytes > self._max_idle_bytes:
            dropped.append(self._idle.popleft())
            self._idle_bytes -= len(dropped[-1])
        return dropped


def _aligned(block: NDArray[np.uint8], num_bytes: int) -> NDArray[np.uint8]:
    offset = -block.ctypes.data % ALIGNMENT_BYTES
    return block[offset : offset + num_bytes]


class _Return(weakref.ref["_Lease"]):
    """Knows the block of a lease, and goes to the pool's list of returned ones when the lease ends.

    That is done by ``deque.append``, so that no Python code runs wherever a batch is dropped: a Ctrl-C that fell into
    it would be lost, as in every ``__del__``, and a garbage collection inside the pool would meet the pool's lock.
    """

    __slots__ = ("block",)
    block: NDArray[np.uint8]


class _Lease:
    """The owner that NumPy sees at the end of every chain of views; its end is the end of the buffer's use."""

    __slots__ = ("__array_interface__", "__weakref__", "_block")

    def __init__(self, block: NDArray[np.uint8]) -> None:
        self._block = block
        self.__array_interface__: dict[str, Any] = {
            "data": (block.ctypes.data, False),
            "shape": block.shape,
            "typestr": "|u1",
            "version": 3,
        }
