"""Connections to the dispatcher."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from stoker_proto.v1 import control_pb2, control_pb2_grpc
from stoker_service import channel
from stoker_service.addresses import PROXY_VARIABLE, parse
from stoker_service.dispatcher.server import DispatcherServer
from stoker_service.options import DispatcherOptions

DEADLINE_S = 10.0


@pytest.fixture
def dispatcher() -> Iterator[DispatcherServer]:
    server = DispatcherServer(DispatcherOptions(port=0))
    server.start()
    yield server
    server.stop()


def status(dispatcher: DispatcherServer) -> Any:
    with channel.opened(parse(dispatcher.address)) as found:
        stub: Any = control_pb2_grpc.ControlServiceStub(found)  # type: ignore[no-untyped-call]  # generated
        return stub.Status(control_pb2.StatusRequest(), timeout=DEADLINE_S)


@pytest.mark.parametrize("value", ["1", "true", "on"])
def test_a_proxy_of_the_environment_is_used_only_when_told(
    dispatcher: DispatcherServer, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        for name in ("http_proxy", "grpc_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{nobody.getsockname()[1]}")
        for name in ("no_proxy", "no_grpc_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        assert status(dispatcher).dispatcher_id
        monkeypatch.setenv(PROXY_VARIABLE, value)
        with pytest.raises(grpc.RpcError) as caught:
            status(dispatcher)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
