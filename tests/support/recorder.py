"""A relay that keeps all bytes that pass through it, either way."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

HOST = "127.0.0.2"


@dataclass(slots=True)
class Recorder:
    """``forward_to`` is a port of 127.0.0.1; connections before it is set are closed."""

    port: int
    forward_to: int = 0
    seen: bytearray = field(default_factory=bytearray)
    _sockets: list[socket.socket] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.forward_to), timeout=10)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            self._sockets += [near, far]
            for source, target in ((near, far), (far, near)):
                thread = threading.Thread(target=self._pump, args=(source, target), name="recorder", daemon=True)
                thread.start()
                self._threads.append(thread)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                self.seen += piece
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def recording(port: int = 0) -> Iterator[Recorder]:
    """A relay at ``port`` of 127.0.0.2, whose owner listens at the same port of 127.0.0.1 or says where."""
    with socket.create_server((HOST, port)) as listener:
        recorder = Recorder(listener.getsockname()[1])
        accepting = threading.Thread(target=recorder._accept, args=(listener,), name="recorder")
        accepting.start()
        try:
            yield recorder
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for one in recorder._sockets:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            for thread in recorder._threads:
                thread.join(10)
            for one in recorder._sockets:
                one.close()
