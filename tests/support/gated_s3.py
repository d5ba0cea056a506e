"""A gate in front of an object server: each request passes on, or is refused as S3 would."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

_KEY_ID = re.compile(r"Credential=([^/]+)/")
_PASSED_ON = ("Range", "Authorization", "If-Match", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token")
# moto looks at no signature, but refuses that nobody reads
_ANYBODY = "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request, Signature=x"
_PASSED_BACK = ("Content-Type", "Content-Range", "ETag", "Last-Modified", "Accept-Ranges")

Refusal = tuple[int, str] | None
"""Status and code; None lets a request through."""


@dataclass(slots=True)
class Throttle:
    """Refuses what is more than ``per_s`` a second, after ``burst`` at once."""

    per_s: float
    burst: float
    num_refused: int = 0
    _tokens: float = field(init=False)
    _at_s: float = field(init=False, default_factory=time.monotonic)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._tokens = self.burst

    def refusal(self, headers: Mapping[str, str]) -> Refusal:
        with self._lock:
            now_s = time.monotonic()
            self._tokens = min(self.burst, self._tokens + (now_s - self._at_s) * self.per_s)
            self._at_s = now_s
            if self._tokens < 1.0:
                self.num_refused += 1
                return 503, "SlowDown"
            self._tokens -= 1.0
            return None


def key_id_of(headers: Mapping[str, str]) -> str:
    """Who signed a request; empty if nobody did. Names of ``headers`` are in lower case."""
    match = _KEY_ID.search(headers.get("authorization", ""))
    return match.group(1) if match else ""


@contextlib.contextmanager
def gated(endpoint: str, refusal: Callable[[Mapping[str, str]], Refusal]) -> Iterator[str]:
    """The address of a gate in front of ``endpoint``."""

    class Handler(_Handler):
        upstream = urlsplit(endpoint).netloc
        refuse = staticmethod(refusal)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, name="gate")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    timeout = 60
    upstream: str
    refuse: Callable[[Mapping[str, str]], Refusal]

    def do_GET(self) -> None:
        refused = self.refuse({name.lower(): value for name, value in self.headers.items()})
        if refused is not None:
            body = f"<Error><Code>{refused[1]}</Code><Message>as scripted</Message></Error>".encode()
            self._send(refused[0], {}, body if self.command == "GET" else b"")
            return
        headers = {name: self.headers[name] for name in _PASSED_ON if name in self.headers}
        headers.setdefault("Authorization", _ANYBODY)
        with contextlib.closing(HTTPConnection(self.upstream, timeout=30)) as connection:
            connection.request(self.command, self.path, headers=headers)
            with connection.getresponse() as answer:
                body = answer.read()
                passed = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
                if self.command == "HEAD":
                    passed["Content-Length"] = answer.headers["Content-Length"]
                self._send(answer.status, passed, body)

    do_HEAD = do_GET  # noqa: N815  # http.server's names

    def log_message(self, *args: Any) -> None:
        """Nothing."""

    def _send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in ({} if "Content-Length" in headers else {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
