"""Nameless files in memory that nobody can change once they are made."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterable
from typing import Any, Final

ALIGNMENT_BYTES: Final = 64
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
_MOVED_BYTES: Final = 4 << 20


class MemoryFile:
    """A memfd that grows at its end. Raises OSError where the system has no such memory, or no more of it."""

    def __init__(self) -> None:
        if not hasattr(os, "memfd_create"):
            raise OSError("this system has no memfd_create")
        self.fd = os.memfd_create("stoker-payload", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self.num_bytes = 0

    def write(self, part: Any) -> int:
        """Append one part, as files do."""
        view = memoryview(part).cast("B")
        written = 0
        while written < len(view):
            written += os.pwrite(self.fd, view[written:], self.num_bytes + written)
        self.num_bytes += written
        return written

    def append(self, part: Any) -> int:
        """Append one part on a boundary, and return where it begins."""
        start = -(-self.num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self.num_bytes = start
        self.write(part)
        return start

    def cut(self, num_bytes: int) -> None:
        """Drop what lies behind."""
        os.ftruncate(self.fd, num_bytes)
        self.num_bytes = num_bytes

    def take_over(self, other: MemoryFile) -> int:
        """Append what stands in another file, which is empty after; never both are there. Return where it begins."""
        start = self.append(b"")
        if other.num_bytes:
            with mmap.mmap(other.fd, other.num_bytes) as mapped, memoryview(mapped) as view:
                for place in range(0, other.num_bytes, _MOVED_BYTES):
                    self.write(view[place : place + _MOVED_BYTES])
                    whole = view[place : place + _MOVED_BYTES].nbytes // mmap.PAGESIZE * mmap.PAGESIZE
                    if whole:
                        mapped.madvise(mmap.MADV_REMOVE, place, whole)
        other.cut(0)
        return start

    def patch(self, start: int, part: bytes) -> None:
        """Write over what stands at ``start``."""
        os.pwrite(self.fd, part, start)

    def seal(self) -> int:
        """Bar all changes, for good, and hand the descriptor over."""
        os.ftruncate(self.fd, self.num_bytes)  # parts at the end may be empty
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)
        fd, self.fd = self.fd, -1
        return fd

    def close(self) -> None:
        """Drop it; harmless again, and after :meth:`seal`."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def sealed(parts: Iterable[bytes | memoryview], num_bytes: int) -> int:
    """Make a file of parts and return its descriptor. Raises ValueError if they are not ``num_bytes`` long."""
    file = MemoryFile()
    try:
        for part in parts:
            file.write(part)
        if file.num_bytes != num_bytes:
            raise ValueError(f"expected {num_bytes} bytes, found {file.num_bytes}")
        return file.seal()
    finally:
        file.close()
