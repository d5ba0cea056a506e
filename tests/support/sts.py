"""A server that gives credentials away for a short time, as AWS's STS does, and what asks whether they still hold."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from support.gated_s3 import Refusal, key_id_of

_ANSWER = """<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result><Credentials>
<AccessKeyId>{key_id}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey><SessionToken>{token}</SessionToken>
<Expiration>{expires}</Expiration></Credentials></{action}Result></{action}Response>"""
_REFUSAL = """<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>
<Code>AccessDenied</Code><Message>HIDDEN is not allowed</Message></Error></ErrorResponse>"""


@dataclass(slots=True)
class Sts:
    """What was asked and given. Calls whose numbers, from 1, are in ``failing`` are refused."""

    validity_s: float = 3600.0
    failing: frozenset[int] = frozenset()
    url: str = ""
    asked: list[dict[str, str]] = field(default_factory=list)
    signers: list[str] = field(default_factory=list)
    given: dict[str, float] = field(default_factory=dict)  # key id → end, by the system's clock
    used: dict[str, int] = field(default_factory=dict)  # key id → requests
    num_expired: int = 0
    is_down: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def give(self, form: dict[str, str], signer: str) -> tuple[int, str]:
        with self._lock:
            self.asked.append(form)
            self.signers.append(signer)
            number = len(self.asked)
            if self.is_down or number in self.failing:
                return 403, _REFUSAL
            key_id, end_s = f"ASIAKEY{number:04}", time.time() + self.validity_s
            self.given[key_id] = end_s
        expires = datetime.fromtimestamp(end_s, UTC).isoformat()
        action = form["Action"]
        return 200, _ANSWER.format(
            action=action, key_id=key_id, secret=f"HIDDEN-{number}", token=f"HIDDEN-TOKEN-{number}", expires=expires
        )

    def refusal(self, headers: Mapping[str, str]) -> Refusal:
        """What S3 says to credentials that have expired or are unknown."""
        key_id = key_id_of(headers)
        with self._lock:
            if key_id not in self.given:
                return 403, "InvalidAccessKeyId"
            if time.time() >= self.given[key_id]:
                self.num_expired += 1
                return 400, "ExpiredToken"
            self.used[key_id] = self.used.get(key_id, 0) + 1
        return None


@contextlib.contextmanager
def run_sts(**options: Any) -> Iterator[Sts]:
    """A server in a thread of this process."""
    state = Sts(**options)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            status, text = state.give(form, key_id_of({name.lower(): value for name, value in self.headers.items()}))
            self.send_response(status)
            self.send_header("Content-Type", "text/xml")
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: Any) -> None:
            """Nothing: the calls are in ``state``."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, name="sts")
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
