"""Calls to workers over Arrow Flight; the one place where its errors become ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from pyarrow import flight

from stoker.errors import AccessError, ServiceError, SpecError, StokerError
from stoker_service.addresses import uses_proxy

HELLO: Final = "hello"
DESCRIBE: Final = "describe"

_UNLIMITED = -1
_DETAIL = re.compile(r"\.? Detail: .*| gRPC client debug context: .*|, with message:(?= $)", re.DOTALL)
# gRPC calls a stream that broke under it UNKNOWN or INTERNAL, which Flight makes an error of the server
_BROKEN = re.compile(r"stream removed|connection reset|socket closed|goaway|broken pipe|rst_stream|eof", re.IGNORECASE)

_MEANINGS: Final[tuple[tuple[tuple[type[BaseException], ...], type[StokerError], str], ...]] = (
    ((flight.FlightTimedOutError,), ServiceError, "did not answer in time"),
    ((flight.FlightCancelledError,), ServiceError, "had its call cancelled"),
    ((flight.FlightUnavailableError,), ServiceError, "is unreachable"),
    ((flight.FlightInternalError, OSError), ServiceError, "broke the connection"),
    ((flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError), AccessError, "refused"),
)


def connect(location: str) -> flight.FlightClient:
    """Return a client with a connection of its own, made at the first call; the caller closes it.

    Proxies of the environment are for the way out of a cluster: they are used only with ``STOKER_USE_PROXY=1``.
    Raises SpecError if ``location`` is none.
    """
    options = [
        ("grpc.enable_http_proxy", int(uses_proxy())),
        ("grpc.max_send_message_length", _UNLIMITED),
        ("grpc.max_receive_message_length", _UNLIMITED),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    try:
        return flight.FlightClient(location, generic_options=options)
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        reason = _text(error)
        raise SpecError(f"{location!r} is no address of a worker, such as grpc://10.0.0.7:4301: {reason}") from None


def act(client: flight.FlightClient, location: str, action: str, body: bytes, deadline_s: float) -> Iterator[bytes]:
    """Yield the results of an action as they come; all of them within ``deadline_s``.

    Raises ServiceError if the worker is unreachable or late, as :func:`translate` says.
    """
    with translated(location):
        for result in client.do_action(flight.Action(action, body), flight.FlightCallOptions(timeout=deadline_s)):
            yield result.body.to_pybytes()


@contextmanager
def translated(location: str) -> Iterator[None]:
    """Turn what Flight raises inside into errors of ours that name the worker."""
    try:
        yield
    except StokerError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise translate(error, location) from error


def translate(error: BaseException, location: str) -> StokerError:
    """Return our error for one of Flight's.

    ServiceError: the worker may answer again, or another in its place. AccessError: it refused. StokerError: a fault
    of it or of ours; the worker's own errors come as messages and never this way.
    """
    text = _text(error)
    for types, made, what in _MEANINGS:
        if isinstance(error, types):
            return made(f"worker {location} {what}: {text}")
    if _BROKEN.search(text):
        return ServiceError(f"worker {location} broke the connection: {text}")
    return StokerError(f"worker {location} failed: {type(error).__name__}: {text}")


def _text(error: BaseException) -> str:
    text = str(error.args[0]) if error.args else str(error)  # str() of a KeyError is a repr
    return _DETAIL.sub("", text).strip().strip("'")
