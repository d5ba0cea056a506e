"""Processes that were forked from one that uses gRPC."""

from __future__ import annotations

import os
from typing import Final

from stoker.errors import StokerError

REMEDY: Final = (
    "make the loader in the child, before this process opens one, or start children with "
    'multiprocessing.get_context("spawn")'
)

_grpc_pid = 0  # the process that used gRPC first: a fork of it cannot use it again


def check() -> None:
    """Raise StokerError in a fork of a process that has used gRPC, where its calls would hang."""
    global _grpc_pid  # noqa: PLW0603  # gRPC itself is one for each process
    _grpc_pid = _grpc_pid or os.getpid()
    if _grpc_pid != os.getpid():
        raise StokerError(
            f"process {os.getpid()} is a fork of process {_grpc_pid}, which has used a service: gRPC does not work in "
            f"such a fork; {REMEDY}"
        )
