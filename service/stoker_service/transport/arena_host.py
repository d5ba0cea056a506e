"""The thread that hands out the arena's descriptor."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import struct
import threading
from typing import Final, Self

from stoker.memory.arena import Arena

GREETING: Final = b"stoker-arena-1"
_PEER_TIMEOUT_S = 1.0
_CREDENTIALS = struct.Struct("3i")

_log = logging.getLogger(__name__)


class ArenaHost:
    """Gives a descriptor of an arena, for reading only, to each process of the same user that asks.

    They ask at a socket of Linux's abstract namespace, so no file is left behind, whatever ends this process. Owns one
    thread, from the constructor to :meth:`close`. The constructor raises OSError.
    """

    def __init__(self, arena: Arena) -> None:
        self.socket_name: Final = f"stoker-{secrets.token_hex(16)}"
        self._fd = arena.read_only_fd()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(address_of(self.socket_name))
            self._socket.listen(16)
        except OSError:
            self._release()
            raise
        self._thread = threading.Thread(target=self._serve, name="stoker-arena-host", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more; joins the thread. Harmless again."""
        if self._thread.is_alive():
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes accept()
            self._thread.join()
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _release(self) -> None:
        self._socket.close()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return  # shut down
            with peer:
                try:
                    self._answer(peer)
                except OSError as error:
                    _log.info("a process that asked for shared memory went away: %s", error)

    def _answer(self, peer: socket.socket) -> None:
        peer.settimeout(_PEER_TIMEOUT_S)
        uid = uid_of(peer)
        if uid != os.getuid():
            _log.warning("user %d asked for the shared memory of user %d: refused", uid, os.getuid())
            return
        socket.send_fds(peer, [GREETING], [self._fd])


def address_of(socket_name: str) -> str:
    """The address in the abstract namespace."""
    return f"\0{socket_name}"


def uid_of(peer: socket.socket) -> int:
    """The user at the other end, as the kernel noted it when the connection was made."""
    _, uid, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(uid)
