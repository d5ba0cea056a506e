"""The pages of a process: answers, bounds, end."""

from __future__ import annotations

import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress

import pytest

from stoker.errors import SpecError
from stoker_service import http
from stoker_service.http import Pages

READY: list[str | None] = [None]


@pytest.fixture
def pages() -> Iterator[Pages]:
    READY[0] = None
    served = Pages("127.0.0.1", 0, unready=lambda: READY[0], metrics=lambda: b"stoker_x 1\n")
    yield served
    served.close()


def get(url: str, method: str = "GET") -> tuple[int, str, str]:
    request = urllib.request.Request(url, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=5) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def connect(pages: Pages) -> socket.socket:
    host, port = pages.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=5)


def test_it_answers_health_readiness_and_metrics(pages: Pages) -> None:
    assert get(f"{pages.url}/healthz") == (200, "text/plain; charset=utf-8", "ok\n")
    assert get(f"{pages.url}/readyz")[0] == 200
    assert get(f"{pages.url}/metrics?x=1") == (200, http.METRICS_TYPE, "stoker_x 1\n")
    assert get(f"{pages.url}/")[0] == 404
    assert get(f"{pages.url}/metrics", "HEAD") == (200, http.METRICS_TYPE, "")
    assert get(f"{pages.url}/metrics", "POST")[0] == 501


def test_a_process_that_is_not_ready_says_why(pages: Pages) -> None:
    READY[0] = "not registered yet"
    assert get(f"{pages.url}/readyz")[::2] == (503, "not registered yet\n")
    assert get(f"{pages.url}/healthz")[0] == 200


def test_idle_connections_take_no_more_than_their_places(pages: Pages) -> None:
    idle = [connect(pages) for _ in range(http.MAX_CONNECTIONS)]
    with connect(pages) as late:  # connections are accepted in turn
        assert late.recv(100).startswith(b"HTTP/1.0 503")
    for connection in idle[:2]:
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.0 200")
    for connection in idle:
        connection.close()


def test_a_slow_request_is_cut(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_S", 0.2)
    with connect(pages) as slow:
        slow.sendall(b"GET /he")
        assert slow.recv(100) == b""


def test_closing_ends_open_connections_within_a_second(pages: Pages) -> None:
    with connect(pages) as idle, connect(pages) as other:
        idle.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert idle.recv(100).startswith(b"HTTP/1.0 200")
        started_s = time.monotonic()
        pages.close()
        assert time.monotonic() - started_s < 1.5
        with suppress(ConnectionResetError):  # if it was not accepted yet
            assert other.recv(100) == b""
    with pytest.raises(OSError, match="refused"):
        connect(pages)
    pages.close()


def test_a_taken_port_is_an_error_that_says_what_to_do(pages: Pages) -> None:
    port = int(pages.url.rpartition(":")[2])
    with pytest.raises(
        SpecError, match=rf"http_port={port}: cannot listen on 127.0.0.1:{port}: Address already in use"
    ):
        Pages("127.0.0.1", port, unready=lambda: None, metrics=lambda: b"")
