"""Locks between processes on one file, which the kernel frees when their owner dies.

They are "open file description" locks of single bytes (fcntl(2), Linux 3.15): each number is a lock of its own, taking
one makes no file, and two openings of the file exclude each other also inside one process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from concurrent.futures import Future
from typing import Final

from stoker.storage.daemon_pool import DaemonPool
from stoker.storage.fork_news import tell_after_fork

_FLOCK: Final = struct.Struct("hhqqi4x")
_BUSY: Final = (BlockingIOError, PermissionError)
_MAX_WAITS: Final = 64
_CLOSED: Final = -1


class FileLocks:
    """One opening of a lock file. Safe for many threads, which must not lock the same number."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._pool = DaemonPool(_MAX_WAITS, "stoker-cache-wait")

    def try_lock(self, number: int, *, shared: bool = False) -> bool:
        """Take the lock if nobody else has it."""
        try:
            _call(self._fd, fcntl.F_OFD_SETLK, fcntl.F_RDLCK if shared else fcntl.F_WRLCK, number)
        except _BUSY:
            return False
        return True

    def unlock(self, number: int) -> None:
        _call(self._fd, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, number)

    def is_locked(self, number: int) -> bool:
        """Whether anybody else has it."""
        return _call(self._fd, fcntl.F_OFD_GETLK, fcntl.F_WRLCK, number) != fcntl.F_UNLCK

    def queue(self) -> LockQueue:
        """A way to wait for locks; to be closed."""
        return LockQueue(self._path, self._pool)

    def close(self) -> None:
        """Free all locks but those of queues."""
        fd, self._fd = self._fd, _CLOSED
        _free(fd)

    def abandon(self) -> None:
        """Close without freeing, in a child that was forked with this: the locks are its parent's."""
        os.close(self._fd)


class LockQueue:
    """Takes locks one after another, each with a time limit; ``close`` frees them.

    Whoever waits for several takes them in ascending order, and so waits for none that is lower than what it has:
    nobody waits in a circle.
    """

    def __init__(self, path: str, pool: DaemonPool) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._pool = pool
        self._last: Future[int] | None = None
        tell_after_fork(self)

    def lock(self, number: int, timeout_s: float, *, shared: bool = False) -> bool:
        """Whether the lock was free in time; if it was not, the queue can only be closed."""
        # Only a thread can be left behind in a lock that does not become free.
        kind = fcntl.F_RDLCK if shared else fcntl.F_WRLCK
        self._last = self._pool.submit(_call, self._fd, fcntl.F_OFD_SETLKW, kind, number)
        try:
            self._last.result(max(0.0, timeout_s))
        except OSError:  # a TimeoutError is one
            return False
        return True

    def unlock(self, number: int) -> None:
        _call(self._fd, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, number)

    def close(self) -> None:
        """Free the locks; one that is still waited for is freed as soon as it is had."""
        last, fd, self._fd = self._last, self._fd, _CLOSED
        _unlock_all(fd)
        if last is None or last.done() or last.cancel():
            _free(fd)
        else:
            last.add_done_callback(lambda _: _free(fd))

    def after_fork(self) -> None:
        """The locks are the parent's: a copy of the descriptor would keep them when it dies."""
        if self._fd != _CLOSED:
            os.close(self._fd)
            self._fd = _CLOSED


def _call(fd: int, command: int, kind: int, number: int, num_numbers: int = 1) -> int:
    if fd == _CLOSED:  # another thread closed the cache
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    answer = fcntl.fcntl(fd, command, _FLOCK.pack(kind, os.SEEK_SET, number, num_numbers, 0))
    return int(_FLOCK.unpack(answer)[0])


def _free(fd: int) -> None:
    _unlock_all(fd)  # closing alone would leave the locks to a child that was forked meanwhile
    os.close(fd)


def _unlock_all(fd: int) -> None:
    _call(fd, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, 0, 0)
