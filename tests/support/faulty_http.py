"""A web server on loopback that serves bytes with Range and ETag, and fails as it is told.

Every path has a script: the first GET meets its first fault, the second its second; after the last, and on HEAD, the
answers are right. ``seeded_faults`` draws a script.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import re
import socket
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, unquote, urlsplit


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection breaks after ``num_bytes`` of the body."""

    num_bytes: int


@dataclass(frozen=True, slots=True)
class EmptyOk:
    """200 with an empty body (s3-connector-for-pytorch 293)."""


@dataclass(frozen=True, slots=True)
class Stall:
    """Headers, then nothing until the server closes."""


@dataclass(frozen=True, slots=True)
class Status:
    """An error status; ``code`` is the error code in an S3-like body."""

    status: int
    code: str = ""
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True)
class Flip:
    """One byte of the body has a flipped bit; length and headers are right."""

    at: int


@dataclass(frozen=True, slots=True)
class Short:
    """A well-formed 206 that holds the first ``num_bytes`` of the range only."""

    num_bytes: int


@dataclass(frozen=True, slots=True)
class Shifted:
    """A well-formed 206 of the range that begins ``by`` bytes later."""

    by: int


@dataclass(frozen=True, slots=True)
class NoRanges:
    """200 with the whole object, as servers without Range answer."""


_NO_HEADERS: Mapping[str, str] = {}

Fault = Cut | EmptyOk | Stall | Status | Flip | Short | Shifted | NoRanges


def seeded_faults(seed: int, count: int) -> list[Fault]:
    """``count`` faults that a retry heals, without those that stall."""
    chance = random.Random(seed)
    makers = (
        lambda: Cut(chance.randrange(50)),
        EmptyOk,
        lambda: Status(503, "SlowDown", 1),
        lambda: Status(500, "InternalError"),
        lambda: Status(429),
        lambda: Short(chance.randrange(1, 50)),
        lambda: Shifted(chance.randrange(1, 50)),
    )
    return [chance.choice(makers)() for _ in range(count)]


@dataclass(slots=True)
class FaultyServer:
    """What is served and what was asked."""

    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    etags: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[str, str, str]] = field(default_factory=list)  # method, path, Range
    scripts: dict[str, deque[Fault]] = field(default_factory=dict)
    head_status: int = 200  # another one is the answer to every HEAD
    closing: threading.Event = field(default_factory=threading.Event)
    stalling: threading.Event = field(default_factory=threading.Event)  # set once a request has met Stall

    def put(self, name: str, payload: bytes, faults: Iterable[Fault] = ()) -> str:
        """Serve ``payload`` under ``name``, meeting ``faults`` first; returns its URL."""
        self.files[f"/{name}"] = payload
        self.scripts[f"/{name}"] = deque(faults)
        self.etags[f"/{name}"] = f'"{hashlib.md5(payload).hexdigest()}"'
        return f"{self.url}/{quote(name)}"

    def num_gets(self, name: str) -> int:
        return sum(method == "GET" and path == f"/{name}" for method, path, _ in self.requests)


@contextlib.contextmanager
def run_faulty_http(files: Mapping[str, bytes] | None = None) -> Iterator[FaultyServer]:
    """A server in a thread of this process; closing breaks what stalls."""
    server = _Server(("127.0.0.1", 0), _Handler)
    state = FaultyServer(f"http://127.0.0.1:{server.server_port}")
    server.state = state
    for name, payload in (files or {}).items():
        state.put(name, payload)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, name="faulty-http")
    thread.start()
    try:
        yield state
    finally:
        state.closing.set()
        server.shutdown()
        thread.join()
        server.break_connections()
        server.server_close()  # joins the handlers


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True
    request_queue_size = 128
    state: FaultyServer

    def __init__(self, *args: Any) -> None:
        self._connections: set[socket.socket] = set()
        super().__init__(*args)

    def finish_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        try:
            super().finish_request(request, client_address)
        finally:
            self._connections.discard(request)

    def break_connections(self) -> None:
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Broken connections are what this server is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def do_HEAD(self) -> None:
        self._answer(None)

    def do_GET(self) -> None:
        script = self.server.state.scripts.get(self._name())
        self._answer(script.popleft() if script else None)

    def log_message(self, *args: Any) -> None:
        """Nothing: the requests are in ``state``."""

    def _name(self) -> str:
        return unquote(urlsplit(self.path).path)

    def _answer(self, fault: Fault | None) -> None:
        state = self.server.state
        state.requests.append((self.command, self._name(), self.headers.get("Range", "")))
        payload = state.files.get(self._name())
        if isinstance(fault, Status):
            self._refuse(fault)
        elif self.command == "HEAD" and state.head_status != 200:
            self._send(state.head_status, b"")
        elif payload is None:
            self._send(404, b"nothing here")
        else:
            self._serve(payload, fault)

    def _refuse(self, fault: Status) -> None:
        body = (
            f"<Error><Code>{fault.code}</Code><Message>as scripted</Message></Error>" if fault.code else "as scripted"
        )
        wait = {} if fault.retry_after_s is None else {"Retry-After": str(fault.retry_after_s)}
        self._send(fault.status, body.encode(), wait)

    def _serve(self, payload: bytes, fault: Fault | None) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        headers = {"ETag": self.server.state.etags[self._name()], "Accept-Ranges": "bytes"}
        match fault:
            case EmptyOk():
                self._send(200, b"", headers)
                return
            case NoRanges():
                self._send(200, payload, headers)
                return
            case _ if asked is None:
                self._send(200, payload, headers)
                return
        start, stop = int(asked.group(1)), min(int(asked.group(2)) + 1, len(payload))
        if start >= len(payload):
            self._send(416, b"", {"Content-Range": f"bytes */{len(payload)}"})
            return
        self._serve_range(payload, start, stop, fault, headers)

    def _serve_range(self, payload: bytes, start: int, stop: int, fault: Fault | None, headers: dict[str, str]) -> None:
        if isinstance(fault, Shifted):
            start, stop = start + fault.by, stop + fault.by
        if isinstance(fault, Short):
            stop = min(stop, start + fault.num_bytes)
        body = bytearray(payload[start:stop])
        if isinstance(fault, Flip):
            body[fault.at] ^= 0x10
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(payload)}"
        match fault:
            case Cut(num_bytes):
                num_sent = num_bytes
            case Stall():
                num_sent = 0
            case _:
                num_sent = len(body)
        self._send(206, bytes(body), headers, num_sent)
        if isinstance(fault, (Cut, Stall)):
            if isinstance(fault, Stall):
                self.server.state.stalling.set()
                self.server.state.closing.wait()
            self.close_connection = True

    def _send(
        self, status: int, body: bytes, headers: Mapping[str, str] = _NO_HEADERS, num_sent: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:num_sent])
        self.wfile.flush()
