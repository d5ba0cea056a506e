"""The pages that schedulers and Prometheus ask a process for."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from stoker.errors import SpecError
from stoker_service.addresses import joined

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_CONNECTIONS = 16
REQUEST_S = 5.0  # what one request may take, a slow reader's included
CLOSE_S = 1.0

_TEXT = "text/plain; charset=utf-8"
_FULL = b"HTTP/1.0 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Pages:
    """``/healthz``, ``/readyz`` and ``/metrics`` of one process, from threads of its own.

    Args:
        host, port: where it listens; port 0 takes a free one.
        unready: returns why the process is not ready, None if it is; called in a thread of the server's.
        metrics: returns the text of ``/metrics``; the same.

    ``/healthz`` says 200 as long as this process answers; ``/readyz`` 200 or 503 and the reason. At most
    MAX_CONNECTIONS at one time, each for one request. Raises SpecError if it cannot listen there.
    """

    def __init__(
        self, host: str, port: int, *, unready: Callable[[], str | None], metrics: Callable[[], bytes]
    ) -> None:
        self._server = _listen(host, port)
        self._server.unready, self._server.metrics = unready, metrics
        self.url = f"http://{joined(host, self._server.server_address[1])}"
        self._thread = threading.Thread(target=self._server.run, name="stoker-http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close all connections and end the threads; within CLOSE_S. May be called again."""
        until_s = time.monotonic() + CLOSE_S
        self._server.stop()
        self._thread.join(max(0.0, until_s - time.monotonic()))
        for thread in self._server.end_connections():
            thread.join(max(0.0, until_s - time.monotonic()))


class _Server(HTTPServer):
    """One thread a connection, so many and no more."""

    request_queue_size = 16
    unready: Callable[[], str | None]
    metrics: Callable[[], bytes]

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._is_closed = False
        self._lock = threading.Lock()
        self._open: dict[threading.Thread, socket.socket] = {}
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        # HTTPServer's asks the name server for this machine's name: seconds, where there is none.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def run(self) -> None:
        while not self._is_closed:
            self.handle_request()
        self.server_close()

    def stop(self) -> None:
        self._is_closed = True
        with contextlib.suppress(OSError):  # closed already
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for a connection

    def end_connections(self) -> list[threading.Thread]:
        with self._lock:
            still = dict(self._open)
        for connection in still.values():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        return list(still)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) < MAX_CONNECTIONS:
                thread = threading.Thread(
                    target=self._answer, args=(request, client_address), name="stoker-http-request", daemon=True
                )
                thread.start()
                self._open[thread] = request
                return
        with contextlib.suppress(OSError):
            request.settimeout(0.0)
            request.send(_FULL)
        self.shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: whoever hung up knows it, and the thread goes on."""

    def _answer(self, request: Any, client_address: Any) -> None:
        until = threading.Timer(REQUEST_S, _cut, args=(request,))
        until.daemon = True
        until.start()
        try:
            self.finish_request(request, client_address)
        except OSError:  # the other side hung up
            pass
        finally:
            until.cancel()
            self.shutdown_request(request)
            with self._lock:
                self._open.pop(threading.current_thread())


class _Handler(BaseHTTPRequestHandler):
    """Answers one request; HTTP/1.0, so that a connection ends with it."""

    server: _Server
    server_version = "stoker"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer GET."""
        status, kind, body = self._page(self.path.partition("?")[0])
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - the name that http.server calls

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the base
        """Nothing: a line every few seconds for each who asks would hide what matters."""

    def _page(self, path: str) -> tuple[int, str, bytes]:
        if path == "/healthz":
            return 200, _TEXT, b"ok\n"
        if path == "/readyz":
            reason = self.server.unready()
            return (200, _TEXT, b"ok\n") if reason is None else (503, _TEXT, f"{reason}\n".encode())
        if path == "/metrics":
            return 200, METRICS_TYPE, self.server.metrics()
        return 404, _TEXT, b"there are /healthz, /readyz and /metrics\n"


def _listen(host: str, port: int) -> _Server:
    try:
        return _Server(host, port)
    except OSError as error:
        raise SpecError(
            f"http_port={port}: cannot listen on {joined(host, port)}: {error.strerror or error}; expected a free port "
            "of an address of this machine; take another, or 0 for any"
        ) from error


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
