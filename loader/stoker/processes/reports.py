"""What the trainer is told about one worker process, over a socket of that worker's own."""

from __future__ import annotations

import os
import select
import socket
from contextlib import suppress
from typing import Final

from stoker.processes import forks

_STARTED: Final = b"S"  # its pid; with its pidfd
_READY: Final = b"R"
_FAILED: Final = b"F"  # why it did not become ready
_ENDED: Final = b"E"  # its wait status
_MAX_TEXT_BYTES: Final = 60_000
_MAX_BYTES: Final = 1 << 16


class Reports:
    """The trainer's end. Owns the descriptors by which it knows the worker.

    Who reports: the process that forked the worker says that it started and how it ended; the worker says that it is
    ready, or why not. So the end is known without signals, and whoever the worker's parent is.
    """

    def __init__(self, sock: socket.socket, stack_fd: int) -> None:
        self._sock = sock
        self.stack_fd = stack_fd
        self.pid: int | None = None
        self.pid_fd = -1
        self.is_ready = False
        self.failure: str | None = None
        self.wait_status: int | None = None
        self.is_over = False
        forks.close_in_child(self)

    def read(self, timeout_s: float) -> bool:
        """Take note of one report, or of the end of all; False if there is none in time."""
        if self.is_over or self._sock.fileno() < 0:
            return False
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        if not poll.poll(max(0.0, timeout_s) * 1000):
            return False
        try:
            report, fds, _, _ = socket.recv_fds(self._sock, _MAX_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:
            report, fds = b"", []
        except OSError:
            if self._sock.fileno() >= 0:
                raise
            return False  # closed by another thread at this moment
        content = report[1:]
        match report[:1]:
            case b"S":
                self.pid = int(content)
                self.pid_fd = fds[0] if fds else -1
            case b"R":
                self.is_ready = True
            case b"F":
                self.failure = content.decode(errors="replace")
            case b"E":
                self.wait_status = int(content)
                self.is_over = True
            case _:
                self.is_over = True
        return True

    def close(self) -> None:
        """Close the descriptors; harmless again."""
        self._sock.close()
        stack_fd, self.stack_fd = self.stack_fd, -1
        pid_fd, self.pid_fd = self.pid_fd, -1
        for fd in (stack_fd, pid_fd):
            if fd >= 0:
                os.close(fd)

    def __del__(self) -> None:
        self.close()


def pair() -> tuple[socket.socket, socket.socket]:
    """The trainer's end, and the one to report at."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def started(sock: socket.socket, pid: int) -> None:
    """Report that a worker, a child of this process, has this pid."""
    try:
        pid_fd = os.pidfd_open(pid)
    except OSError:  # an old system, or a sandbox
        _send(sock, _STARTED + str(pid).encode(), [])
        return
    _send(sock, _STARTED + str(pid).encode(), [pid_fd])
    os.close(pid_fd)


def ready(sock: socket.socket) -> None:
    """Report that the worker runs its program from now on."""
    _send(sock, _READY, [])


def failed(sock: socket.socket, text: str) -> None:
    """Report why there is no worker."""
    _send(sock, _FAILED + text.encode(errors="replace")[-_MAX_TEXT_BYTES:], [])


def ended(sock: socket.socket, wait_status: int) -> None:
    """Report how the worker ended."""
    _send(sock, _ENDED + str(wait_status).encode(), [])


def _send(sock: socket.socket, report: bytes, fds: list[int]) -> None:
    with suppress(ConnectionError):  # the trainer is no longer interested
        socket.send_fds(sock, [report], fds)
