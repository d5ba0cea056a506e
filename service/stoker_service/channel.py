"""Connections to the dispatcher: how all that call it make theirs."""

from __future__ import annotations

import grpc

from stoker_service.addresses import Address, uses_proxy

_FIRST_RETRY_MS = 100
_LAST_RETRY_MS = 250  # the shortest beat that is of use: one who restarts is back for all within a beat
_CONNECT_MS = 1000


def opened(address: Address, *options: tuple[str, int]) -> grpc.Channel:
    """Return a channel, which connects at its first call; the caller closes it.

    It shares its connection with no other channel, so that one that failed makes no other one wait, and tries again
    within a beat where it finds nobody.
    """
    ours = (
        ("grpc.enable_http_proxy", int(uses_proxy())),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", _FIRST_RETRY_MS),
        ("grpc.max_reconnect_backoff_ms", _LAST_RETRY_MS),
        ("grpc.min_reconnect_backoff_ms", _CONNECT_MS),  # how long one try may take, despite its name
    )
    return grpc.insecure_channel(address.target, options=[*ours, *options])
