"""Messages with descriptors between two processes of one host."""

from __future__ import annotations

import array
import errno
import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from stoker.processes import forks

MAX_FDS: Final = 253
"""Descriptors that one message may carry: the system's own bound (SCM_MAX_FD)."""

_HEADER: Final = struct.Struct("<QQ")  # bytes of the body, number of descriptors
_READ_BYTES: Final = 1 << 16  # many small messages with one call; what is longer is read into place
_ROOM: Final = socket.CMSG_SPACE(MAX_FDS * array.array("i").itemsize)
_MAX_PARTS: Final = 1000  # of one call: the system takes 1024
_MAX_SENT_BYTES: Final = 1 << 30  # of one call: the system takes 2 GiB less a page
_SOCKET_BYTES: Final = 1 << 20
_GONE: Final = frozenset([errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.EBADF])  # the last: closed meanwhile

_Parts: TypeAlias = "Sequence[bytes | memoryview]"


class ChannelClosedError(EOFError):
    """The other side is gone, or this side was closed."""


@dataclass(frozen=True, slots=True)
class Message:
    """What was received: ``body`` is writable memory of its own; whoever takes the message closes ``fds``."""

    body: memoryview
    fds: tuple[int, ...]


@dataclass(slots=True)
class _Kept:
    """What the socket has not taken yet of one message: copies, so that the sender may change its memory."""

    parts: deque[memoryview]
    fds: list[int]


class Channel:
    """One end of a connection that carries whole messages, in order. For one thread at a time.

    Only :meth:`close` may come from another thread; a call that is waiting then ends with ChannelClosedError.

    A message that fits the socket costs one system call on each side. Descriptors are duplicated on the way: the sender
    keeps its own. An exception that a signal's handler raises in the middle of a call (Ctrl-C) may leave the connection
    without its place in the stream; from then on the channel counts as closed. In a forked child, every channel that
    its parent had is closed.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._kept: deque[_Kept] = deque()
        self._buffer = bytearray(_READ_BYTES)
        self._begin = self._end = 0  # of what was read and not yet taken
        self._fds: deque[int] = deque()  # in the order of the messages that they belong to
        self._body: memoryview | None = None  # of a message longer than the buffer, and how much of it is there
        self._num_read = self._num_fds = 0
        self._is_ended = False  # the other side will send no more
        self._is_cut = False  # inside a call that changes the stream
        forks.close_in_child(self)

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """A channel, and the socket that becomes its other end elsewhere."""
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        for each in (here, there):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
        return cls(here), there

    def fileno(self) -> int:
        """The socket's descriptor, -1 once closed."""
        return self._sock.fileno()

    # -- sending -------------------------------------------------------------------------------------------------------

    def send(self, parts: _Parts, fds: Sequence[int] = ()) -> None:
        """Send one message, whose body is all parts in a row, without ever blocking.

        What the socket does not take now is copied and goes, in order, with later calls of any method. Raises
        ChannelClosedError if the other side is gone.
        """
        if len(fds) > MAX_FDS:
            raise ValueError(f"a message carries up to {MAX_FDS} descriptors, not {len(fds)}")
        self._check()
        views = deque(view for view in map(_bytes_of, parts) if view.nbytes)
        views.appendleft(memoryview(_HEADER.pack(sum(view.nbytes for view in views), len(fds))))
        if self._kept:
            self._push()
        sent_fds = not self._kept and self._send_some(views, fds)
        if not views:
            return
        kept_fds = [] if sent_fds else [os.dup(fd) for fd in fds]
        self._kept.append(_Kept(deque(memoryview(bytes(view)) for view in views), kept_fds))

    def flush(self, timeout_s: float | None) -> bool:
        """Wait until nothing is kept any more; False if it still is. Raises ChannelClosedError."""
        deadline = _deadline(timeout_s)
        while True:
            self._check()
            self._push()
            if not self._kept:
                return True
            left = _left(deadline)
            if left == 0:
                return False
            _poll(self._sock, select.POLLOUT, left)

    def _push(self) -> None:
        """Send what is kept, as far as the socket takes it."""
        while self._kept:
            first = self._kept[0]
            if self._send_some(first.parts, first.fds):
                _close_all(first.fds)
            if first.parts:
                return
            self._kept.popleft()

    def _send_some(self, views: deque[memoryview], fds: Sequence[int]) -> bool:
        """Send views until the socket is full, removing what is sent; whether the descriptors went as well."""
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        has_sent = False
        while views:
            several, num_bytes = [], 0
            for view in views:
                several.append(view[: _MAX_SENT_BYTES - num_bytes])
                num_bytes += several[-1].nbytes
                if len(several) == _MAX_PARTS or num_bytes == _MAX_SENT_BYTES:
                    break
            self._is_cut = True
            try:
                num_sent = self._sock.sendmsg(several, () if has_sent else control)
            except BlockingIOError:
                self._is_cut = False
                break
            except OSError as error:
                self._is_cut = False
                if error.errno in _GONE:
                    raise ChannelClosedError("the other side is gone") from error
                raise
            _drop(views, num_sent)
            has_sent = True
            self._is_cut = False
            if num_sent < num_bytes:
                break
        return has_sent

    # -- receiving -----------------------------------------------------------------------------------------------------

    def receive(self, timeout_s: float | None) -> Message | None:
        """The next message; None if there is none in time, which None leaves open.

        Sends what is kept meanwhile, so two sides that both send much do not wait for each other. Raises
        ChannelClosedError when the other side is gone and all that it sent is received.
        """
        deadline = _deadline(timeout_s)
        while True:
            self._check()
            message = self._take()
            if message is not None:
                return message
            if self._is_ended:
                raise ChannelClosedError("the other side is gone")
            self._push_if_open()
            if self._read():
                continue
            left = _left(deadline)
            if left == 0:
                return None
            _poll(self._sock, select.POLLIN | (select.POLLOUT if self._kept else 0), left)

    def has_message(self) -> bool:
        """Whether :meth:`receive` has an answer without reading: a whole message, or the end."""
        if self._is_ended:
            return True
        if self._body is not None:
            return self._num_read == self._body.nbytes
        num_bytes = self._end - self._begin
        return num_bytes >= _HEADER.size and num_bytes - _HEADER.size >= self._next_header()[0]

    def _next_header(self) -> tuple[int, int]:
        num_bytes, num_fds = _HEADER.unpack_from(self._buffer, self._begin)
        return num_bytes, num_fds

    def _take(self) -> Message | None:
        """The next message that was wholly read."""
        if self._body is None and not self._begin_body():
            return None
        assert self._body is not None
        if self._num_read < self._body.nbytes:
            return None
        body, self._body = self._body, None
        return Message(body, tuple(self._fds.popleft() for _ in range(self._num_fds)))

    def _begin_body(self) -> bool:
        """Take a header and what follows it out of the buffer; False if the header is not there yet."""
        if self._end - self._begin < _HEADER.size:
            return False
        num_bytes, self._num_fds = self._next_header()
        self._begin += _HEADER.size
        # not bytearray: it would write zeros to every page first
        body = np.empty(num_bytes, np.uint8).data
        num_there = min(num_bytes, self._end - self._begin)
        body[:num_there] = memoryview(self._buffer)[self._begin : self._begin + num_there]
        self._begin += num_there
        self._body, self._num_read = body, num_there
        return True

    def _read(self) -> bool:
        """Read once what the socket has; False if it has nothing."""
        if self._body is not None:
            target = self._body[self._num_read :]
        else:
            rest = self._end - self._begin  # less than a header
            self._buffer[:rest] = self._buffer[self._begin : self._end]
            self._begin, self._end = 0, rest
            target = memoryview(self._buffer)[rest:]
        self._is_cut = True
        try:
            num_bytes, control, flags, _ = self._sock.recvmsg_into([target], _ROOM, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            self._is_cut = False
            return False
        except OSError as error:
            self._is_cut = False
            if error.errno not in _GONE:
                raise
            num_bytes, control, flags = 0, [], 0
        for _, _, content in control:
            self._fds.extend(_fds_of(content))
        if self._body is not None:
            self._num_read += num_bytes
        else:
            self._end += num_bytes
        self._is_ended = num_bytes == 0
        self._is_cut = False
        if flags & socket.MSG_CTRUNC:
            self.close()
            raise OSError(errno.EMFILE, "no descriptors left for those that a message brought; raise `ulimit -n`")
        return True

    def _push_if_open(self) -> None:
        """Send what is kept; if the other side takes no more, what it sent before can still be received."""
        try:
            self._push()
        except ChannelClosedError:
            self._drop_kept()

    # -- the end -------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._sock.fileno() < 0:
            where = "" if forks.is_own(self) else " in this forked process: what its parent started stays the parent's"
            raise ChannelClosedError(f"the channel is closed{where}")
        if self._is_cut:
            raise ChannelClosedError("the channel lost its place in the stream: a call was interrupted, or two overlap")

    def close(self) -> None:
        """Hang up: the other side receives what the socket has taken, then the end. Harmless again."""
        if self._sock.fileno() >= 0 and forks.is_own(self):
            try:
                # reaches the other side even if a forked process holds a copy of the descriptor
                self._sock.shutdown(socket.SHUT_RDWR)
            except OSError as error:
                if error.errno not in _GONE:
                    raise
        self._sock.close()
        self._drop_kept()
        _close_all(self._fds)

    def _drop_kept(self) -> None:
        for kept in self._kept:
            _close_all(kept.fds)
        self._kept.clear()

    def __del__(self) -> None:
        # descriptors of messages that nobody took, or that never went
        if hasattr(self, "_fds"):
            self._drop_kept()
            _close_all(self._fds)


def wait(channels: Sequence[Channel], timeout_s: float | None) -> list[Channel]:
    """Wait until some channels have a message, part of one, or their end, and say which; sends what they keep."""
    deadline = _deadline(timeout_s)
    while True:
        ready = [channel for channel in channels if channel.fileno() < 0 or channel.has_message()]
        by_fd = {channel.fileno(): channel for channel in channels if channel not in ready}
        by_fd.pop(-1, None)  # closed by another thread at this moment
        poll = select.poll()
        for fd, channel in by_fd.items():
            channel._push_if_open()
            poll.register(fd, select.POLLIN | (select.POLLOUT if channel._kept else 0))
        left = 0.0 if ready else _left(deadline)
        events = poll.poll(None if left is None else left * 1000)
        ready += [by_fd[fd] for fd, happened in events if happened & ~select.POLLOUT]
        if ready or _left(deadline) == 0:
            return [channel for channel in channels if channel in ready]


def _poll(sock: socket.socket, events: int, timeout_s: float | None) -> None:
    fd = sock.fileno()
    if fd < 0:
        return
    poll = select.poll()
    poll.register(fd, events)
    poll.poll(None if timeout_s is None else timeout_s * 1000)


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _bytes_of(part: bytes | memoryview) -> memoryview:
    view = memoryview(part)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def _drop(views: deque[memoryview], num_bytes: int) -> None:
    """Remove the first bytes of a row of views."""
    while views and num_bytes >= views[0].nbytes:
        num_bytes -= views.popleft().nbytes
    if num_bytes:
        views[0] = views[0][num_bytes:]


def _fds_of(content: bytes) -> array.array[int]:
    fds = array.array("i")
    fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    return fds


def _close_all(fds: deque[int] | list[int]) -> None:
    while fds:
        os.close(fds.pop())
