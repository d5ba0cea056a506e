"""A second process that makes values and encodes them, with an arena between it and the test."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Literal, Self

import cloudpickle

from stoker.batch import BufferPool
from stoker.memory.arena import Arena
from stoker.processes.lent import LentMemory
from stoker.processes.objects import Encoder, decode
from support.programs import environment

DEADLINE_S = 60.0
_LENGTH = struct.Struct("<Q")


class Worker:
    """The test's side: asks for values. Its process ends with it."""

    def __init__(self, method: Literal["new", "fork"] = "new") -> None:
        self._sock, theirs = socket.socketpair()
        self._sock.settimeout(DEADLINE_S)
        if method == "fork":
            self.pid = os.fork()
            if self.pid == 0:
                self._sock.close()
                _serve(theirs)
                os._exit(0)
        else:
            command = [sys.executable, "-m", "support.objects_worker", str(theirs.fileno())]
            process = subprocess.Popen(command, env=environment(), pass_fds=[theirs.fileno()])
            self.pid, process.returncode = process.pid, 0  # it is waited for here
        theirs.close()
        _, fds, _, _ = socket.recv_fds(self._sock, 1, 1)
        self.memory = LentMemory.of(fds[0])
        self.released: list[int] = []

    def message(self, make: Callable[..., Any], *arguments: Any) -> memoryview:
        """Have the worker call a function that is sent by value, and return its result as a message."""
        self.released = self.memory.take_returned()
        _send(self._sock, cloudpickle.dumps((self.released, make, arguments)))
        return memoryview(_receive(self._sock))

    def ask(self, make: Callable[..., Any], *arguments: Any) -> Any:
        """Have the worker call a function, and return its result."""
        return decode(self.message(make, *arguments), self.memory)

    def kill(self) -> None:
        """End it as the out-of-memory killer does."""
        os.kill(self.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        self._sock.close()
        if self.pid:
            os.waitpid(self.pid, 0)
            self.pid = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _serve(sock: socket.socket) -> None:
    from stoker.compat import collate

    arena = Arena.create(256 << 20)
    pool = BufferPool(allocate=arena.allocate)
    encoder = Encoder(pool, arena)
    collate.install(pool)
    socket.send_fds(sock, [b"a"], [arena.fd])
    while True:
        try:
            asked = _receive(sock)
        except EOFError:
            return
        released, make, arguments = pickle.loads(asked)
        encoder.release(released)
        parts = encoder.encode(make(*arguments))
        _send(sock, b"".join(parts))


def _send(sock: socket.socket, message: bytes) -> None:
    sock.sendall(_LENGTH.pack(len(message)) + message)


def _receive(sock: socket.socket) -> bytearray:
    (num_bytes,) = _LENGTH.unpack(_read(sock, _LENGTH.size))
    return _read(sock, num_bytes)


def _read(sock: socket.socket, num_bytes: int) -> bytearray:
    read = bytearray(num_bytes)
    left = memoryview(read)
    while left:
        count = sock.recv_into(left)
        if not count:
            raise EOFError
        left = left[count:]
    return read


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
