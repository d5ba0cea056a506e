"""What an address of the service looks like."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from stoker.errors import SpecError

SCHEME = "stoker"
DEFAULT_PORT = 4300
SERVICE_VARIABLE = "STOKER_SERVICE"
PROXY_VARIABLE = "STOKER_USE_PROXY"
WILDCARDS = frozenset({"0.0.0.0", "::", "*", ""})


@dataclass(frozen=True, slots=True)
class Address:
    """Host and port of a dispatcher; an IPv6 host without its brackets."""

    host: str
    port: int

    @property
    def target(self) -> str:
        """As gRPC takes it: ``host:port``."""
        return joined(self.host, self.port)

    def __str__(self) -> str:
        return f"{SCHEME}://{self.target}"


def parse(text: str, *, option: str = "service") -> Address:
    """Read ``stoker://HOST:PORT``; the scheme and the port (4300) may be left out."""
    scheme, separator, rest = text.strip().rpartition("://")
    if separator and scheme != SCHEME:
        raise _wrong(text, option, f"the scheme is {scheme!r}")
    rest = rest.rstrip("/")
    host, port = _split(rest)
    if not host or any(letter in host for letter in "/@? "):
        raise _wrong(text, option, "it names no host")
    if port and not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise _wrong(text, option, f"the port is {port!r}")
    return Address(host, int(port) if port else DEFAULT_PORT)


def from_environment(given: str | None) -> Address:
    """Return the service that was given, else the one of ``STOKER_SERVICE``, else this machine's at the usual port."""
    if given is not None:
        return parse(given, option="--service")
    named = os.environ.get(SERVICE_VARIABLE)
    return parse(named, option=SERVICE_VARIABLE) if named else Address("127.0.0.1", DEFAULT_PORT)


def uses_proxy() -> bool:
    """Whether the environment asks for its proxies to be used inside the service; they lead out of a cluster else."""
    return os.environ.get(PROXY_VARIABLE, "").lower() in ("1", "true", "yes", "on")


def joined(host: str, port: int) -> str:
    """``host:port``, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reached_from(address: Address) -> str:
    """Return the address of this machine that packets towards ``address`` carry; sends none.

    For a server that listens on all interfaces and must tell others one name.
    """
    try:
        family, kind, _, _, found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(found)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise SpecError(
            f"this machine finds no way to {address}: {error}; check the host's name, or say with --advertise under "
            "which name clients reach this worker"
        ) from error


def outward_host() -> str:
    """Return the address of this machine that faces the network beyond it; loopback's if there is none."""
    try:
        return reached_from(Address("192.0.2.1", 9))  # reserved for documentation (RFC 5737): nobody's, routed outward
    except SpecError:
        return "127.0.0.1"


def _split(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        return host, port.removeprefix(":")
    if text.count(":") > 1:  # an IPv6 address without brackets holds no port
        return text, ""
    host, _, port = text.partition(":")
    return host, port


def _wrong(text: str, option: str, found: str) -> SpecError:
    return SpecError(f"{option}={text!r}: expected stoker://HOST:PORT, such as stoker://10.0.0.7:4300; {found}")
