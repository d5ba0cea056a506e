"""Memory for batches that other processes of the host may read."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import threading
from collections import deque
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stoker.memory.block import Block, Ending, watch
from stoker.memory.free_ranges import FreeRanges
from stoker.memory.seal import TABLE_BYTES, Seals

PAGE_BYTES: Final = 4096
_SPREAD: Final = 4  # addresses for each byte that may be in use, so that scattered ranges do not bar a large one


class Arena:
    """One nameless file in memory (memfd), mapped once, whose ranges are handed out as arrays.

    A range is free again when its array and everything made from it are gone, whichever thread drops the last; its
    pages then go back to the system at the next call of any method here. To keep them warm is the business of the
    :class:`stoker.batch.BufferPool` above. The file has no name, so nothing of it is left when the last process that
    has it open or mapped ends, however it ends. Safe for all threads; a forked child gets no memory of it.
    """

    def __init__(self, fd: int, memory: mmap.mmap, max_bytes: int) -> None:
        self._fd = fd
        self._space: NDArray[np.uint8] = np.frombuffer(memory, np.uint8)
        self._address = self._space.ctypes.data
        self._max_bytes = max_bytes
        self._pid = os.getpid()
        self._madvise = _libc_madvise()
        self._lock = threading.Lock()
        self._free = FreeRanges(len(self._space))
        self._free.take(TABLE_BYTES)
        self.seals: Final = Seals(self._space)
        self._used_bytes = 0
        self._lent: dict[int, Ending] = {}
        self._returned: deque[Ending] = deque()  # appended to without the lock; see Ending

    @classmethod
    def create(cls, max_bytes: int) -> Self:
        """Make an arena of which at most ``max_bytes`` are in use at a time.

        Raises OSError where the system has no such memory, or limits address space or file sizes too tightly for it.
        """
        if not hasattr(os, "memfd_create"):
            raise OSError("this system has no memfd_create")
        num_bytes = TABLE_BYTES + _whole_pages(max(max_bytes, 1)) * _SPREAD
        fd = os.memfd_create("stoker-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, num_bytes)
            # whoever maps it can rely on its size: a file that shrank would kill them with SIGBUS
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            return cls(fd, mmap.mmap(fd, num_bytes), max_bytes)
        except (OSError, OverflowError) as error:
            os.close(fd)
            raise OSError(f"no shared memory of {num_bytes} bytes of addresses: {error}") from error

    @property
    def fd(self) -> int:
        """The file's descriptor, for reading and writing; closed by :meth:`close`."""
        return self._fd

    @property
    def used_bytes(self) -> int:
        """Bytes of the ranges that are in use."""
        self.reclaim()
        return self._used_bytes

    def read_only_fd(self) -> int:
        """Open the file anew for reading; the caller closes the descriptor. Raises OSError, without /proc too."""
        return os.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY | os.O_CLOEXEC)

    def allocate(self, num_bytes: int) -> NDArray[np.uint8] | None:
        """Return an array on a page boundary, its content undefined; None if ``max_bytes`` would be passed."""
        if os.getpid() != self._pid:
            return None  # what the parent gives out next would be the same memory
        size = _whole_pages(max(num_bytes, 1))
        self.reclaim()
        with self._lock:
            fits = self._fd >= 0 and self._used_bytes + size <= self._max_bytes
            start = self._free.take(size) if fits else None
            if start is None:
                return None
            self._used_bytes += size
        block = Block(self._space, self._address + start, size)
        ending = watch(block, self._returned.append, start, size)
        self._lent[id(ending)] = ending
        return np.asarray(block)[:num_bytes]

    def reclaim(self) -> None:
        """Give the pages of ranges that are no longer in use back to the system."""
        if os.getpid() != self._pid:
            return
        while True:
            try:
                ending = self._returned.popleft()
            except IndexError:
                return
            self._lent.pop(id(ending))
            # a failure leaves the pages with the system only for as long as nobody is handed the range again
            self._madvise(self._address + ending.start, ending.num_bytes, mmap.MADV_REMOVE)
            with self._lock:
                self._free.give(ending.start, ending.num_bytes)
                self._used_bytes -= ending.num_bytes

    def offset_of(self, buffer: pa.Buffer) -> int | None:
        """Where in the file a buffer's bytes lie; None if they are not of it."""
        return self.offset_at(int(buffer.address), buffer.size)

    def offset_at(self, address: int, num_bytes: int) -> int | None:
        """Where in the file the bytes at an address of this process lie; None if they are not of it."""
        start = address - self._address
        is_inside = num_bytes > 0 and 0 <= start <= len(self._space) - num_bytes
        return start if is_inside else None

    def close(self) -> None:
        """Hand out no more. Arrays stay valid; the memory goes with the last of them."""
        with self._lock:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)


def _whole_pages(num_bytes: int) -> int:
    return -(-num_bytes // PAGE_BYTES) * PAGE_BYTES


def _libc_madvise() -> Any:
    """The C library's madvise: other threads run meanwhile, which Python's own does not let them."""
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    madvise.restype = ctypes.c_int
    return madvise
