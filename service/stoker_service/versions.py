"""Whether two peers speak a common protocol."""

from __future__ import annotations

from typing import Final

from stoker import __version__
from stoker.errors import StokerError
from stoker_proto.v1 import control_pb2 as wire

PROTOCOL: Final = 1
OLDEST_PROTOCOL: Final = 1


def ours() -> wire.Version:
    """What this release speaks."""
    return wire.Version(protocol=PROTOCOL, oldest_protocol=OLDEST_PROTOCOL, release=__version__)


def check(found: wire.Version, who: str) -> None:
    """Raise StokerError, which says which side to upgrade, if ``who`` speaks no protocol that this release speaks."""
    oldest = found.oldest_protocol or found.protocol
    if oldest <= PROTOCOL and found.protocol >= OLDEST_PROTOCOL:
        return
    older = who if found.protocol < OLDEST_PROTOCOL else "this process"
    raise StokerError(
        f"{who} is Stoker {found.release or 'of an unknown release'} and speaks protocol {oldest} to {found.protocol}; "
        f"this process is Stoker {__version__} and speaks {OLDEST_PROTOCOL} to {PROTOCOL}: upgrade {older}"
    )
