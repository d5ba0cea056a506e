"""The proxy forwards when it is well, and fails as it is told."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from support.proxy import HOST, BlackHole, Cut, Delay, Drop, Proxies, Proxy, Refuse, run_proxies

DEADLINE_S = 30.0


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while received := self.request.recv(65536):
                self.request.sendall(received)


@pytest.fixture(scope="module")
def echo_port() -> Iterator[int]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Echo) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def proxies() -> Iterator[Proxies]:
    with run_proxies() as running:
        yield running


@pytest.fixture
def proxy(proxies: Proxies, echo_port: int) -> Proxy:
    made = proxies.listen()
    made.forward_to(echo_port)
    return made


@pytest.fixture
def line(proxy: Proxy) -> Iterator[socket.socket]:
    with connected(proxy) as made:
        assert echoed(made, b"first") == b"first"
        yield made


def connected(proxy: Proxy) -> socket.socket:
    return socket.create_connection((HOST, proxy.port), timeout=DEADLINE_S)


def echoed(line: socket.socket, text: bytes) -> bytes:
    line.sendall(text)
    return received(line, len(text))


def received(line: socket.socket, num_bytes: int) -> bytes:
    found = b""
    while len(found) < num_bytes and (part := line.recv(num_bytes - len(found))):
        found += part
    return found


def is_silent(line: socket.socket) -> bool:
    """Whether nothing comes for a moment. A busy machine can only make this true too often, never false."""
    line.settimeout(0.2)
    try:
        line.recv(1)
    except TimeoutError:
        return True
    finally:
        line.settimeout(DEADLINE_S)
    return False


def test_it_forwards_every_byte_both_ways_and_the_end(line: socket.socket) -> None:
    text = bytes(range(256)) * 8192
    sender = threading.Thread(target=line.sendall, args=(text,))
    sender.start()
    assert received(line, len(text)) == text
    sender.join()
    line.shutdown(socket.SHUT_WR)
    assert line.recv(1) == b""


def test_without_a_target_it_closes(proxies: Proxies) -> None:
    with connected(proxies.listen()) as line, pytest.raises(ConnectionResetError):
        raise_unless_open(line)


def raise_unless_open(line: socket.socket) -> None:
    """Raise ConnectionResetError if the other side has closed, in whichever way."""
    if line.recv(1) == b"":
        raise ConnectionResetError


def test_cut_resets_what_is_open_only(proxy: Proxy, line: socket.socket) -> None:
    proxy.fail(Cut())
    with pytest.raises(ConnectionResetError):
        raise_unless_open(line)
    with connected(proxy) as other:
        assert echoed(other, b"again") == b"again"


def test_drop_silences_what_is_open_only(proxy: Proxy, line: socket.socket) -> None:
    proxy.fail(Drop())
    line.sendall(b"lost")
    with connected(proxy) as other:
        assert echoed(other, b"again") == b"again"
    assert is_silent(line)
    proxy.heal()
    with pytest.raises(ConnectionResetError):
        raise_unless_open(line)


def test_a_black_hole_swallows_all_and_gives_it_back(proxy: Proxy, line: socket.socket) -> None:
    proxy.fail(BlackHole(3600))
    with connected(proxy) as other:
        for one in (line, other):
            one.sendall(b"late")
            assert is_silent(one)
        proxy.heal()
        assert received(line, 4) == received(other, 4) == b"late"


def test_a_black_hole_ends_by_itself(proxy: Proxy, line: socket.socket) -> None:
    proxy.fail(BlackHole(0.05))
    assert echoed(line, b"through") == b"through"


def test_delay_holds_back(proxy: Proxy, line: socket.socket) -> None:
    proxy.fail(Delay(0.1))
    begun = time.monotonic()
    assert echoed(line, b"late") == b"late"
    assert time.monotonic() - begun >= 0.2


def test_refuse_resets_old_and_new(proxy: Proxy, line: socket.socket) -> None:
    proxy.fail(Refuse(3600))
    with connected(proxy) as other:
        for one in (line, other):
            with pytest.raises(ConnectionResetError):
                raise_unless_open(one)
    proxy.heal()
    with connected(proxy) as other:
        assert echoed(other, b"again") == b"again"
    assert proxy.num_connections() >= 0
