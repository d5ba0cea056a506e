"""Another process's arena, for reading."""

from __future__ import annotations

import mmap
import os
import socket
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stoker.memory.seal import TABLE_BYTES, holds
from stoker_service.transport.arena_host import GREETING, address_of, uid_of


class ArenaView:
    """Maps the arena of a worker on this host, for reading. Safe for all threads.

    What was mapped stays readable whatever becomes of the worker: its memory lives until the last process that maps it
    is gone. It holds a batch only until the worker is told that it was copied, or its stream is gone; what is read
    later may be other bytes, which :meth:`holds` tells, but is never a fault.
    """

    def __init__(self, memory: mmap.mmap) -> None:
        self._space: NDArray[np.uint8] | None = np.frombuffer(memory, np.uint8)

    @classmethod
    def open(cls, socket_name: str, timeout_s: float) -> Self:
        """Ask for the arena that is served under this name and map it. Raises OSError, which names the cause."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(timeout_s)
            asking.connect(address_of(socket_name))
            if uid_of(asking) != os.getuid():
                raise PermissionError(f"the shared memory at {socket_name!r} belongs to user {uid_of(asking)}")
            greeting, fds, _, _ = socket.recv_fds(asking, 64, 1)
        try:
            if greeting != GREETING or len(fds) != 1:
                raise PermissionError(f"the owner of the shared memory at {socket_name!r} refused it")
            memory = mmap.mmap(fds[0], 0, access=mmap.ACCESS_READ)
            if len(memory) < TABLE_BYTES:
                raise OSError(f"the shared memory at {socket_name!r} is of {len(memory)} bytes: not an arena")
            return cls(memory)
        except ValueError as error:
            raise OSError(f"the shared memory at {socket_name!r} cannot be mapped: {error}") from error
        finally:
            for fd in fds:
                os.close(fd)

    def view(self, offset: int, num_bytes: int) -> NDArray[np.uint8]:
        """Return the bytes as an array that may not be written. Raises OSError if the arena has no such bytes."""
        space = self._space
        if space is None:
            raise OSError("the shared memory was closed")
        if not 0 <= offset <= offset + num_bytes <= len(space):
            raise OSError(f"bytes {offset}+{num_bytes} lie outside the shared memory of {len(space)} bytes")
        return space[offset : offset + num_bytes]

    def holds(self, seal: int) -> bool:
        """Whether what was sent under this seal is still there; to be asked after it was copied."""
        space = self._space
        return space is not None and holds(space, seal)

    def close(self) -> None:
        """Let go of the memory; it stays mapped until the last view is gone. Harmless again."""
        self._space = None
