"""Errors of a worker on their way to the trainer."""

from __future__ import annotations

import traceback
from typing import Final

from stoker import errors
from stoker.errors import SampleError, SampleOrigin, StokerError
from stoker.storage.urls import without_secrets
from stoker_proto.v1 import stream_pb2

MAX_TRACE_CHARS: Final = 16_000
MAX_TEXT_CHARS: Final = 16_000

_TYPES: Final[dict[str, type[StokerError]]] = {
    name: found for name, found in vars(errors).items() if isinstance(found, type) and issubclass(found, StokerError)
}


def to_wire(error: BaseException) -> stream_pb2.Error:
    """Return the error with its text, its causes and where they arose as a trace.

    A class that :mod:`stoker.errors` does not list goes as the nearest one above it that is listed, others under their
    own name. Addresses lose their queries and user parts; long texts are cut.
    """
    known = next((base for base in type(error).__mro__ if _TYPES.get(base.__name__) is base), None)
    trace = _clean("".join(traceback.format_exception(error)))[-MAX_TRACE_CHARS:]
    if known is None:
        name = _full_name(type(error))
        text = "".join(traceback.format_exception_only(error)).strip()  # str() of a user's error may raise
        return stream_pb2.Error(type=name, text=_text(text.removeprefix(name).removeprefix(": ")), trace=trace)
    if not isinstance(error, SampleError):
        return stream_pb2.Error(type=known.__name__, text=_text(str(error)), trace=trace)
    found = stream_pb2.Error(type=known.__name__, text=_text(error.reason), op=_clean(error.op or ""), trace=trace)
    if error.origin is not None:
        origin = error.origin  # its URL was made to be shown
        found.origin.CopyFrom(stream_pb2.Origin(url=_valid(origin.url), row=origin.row, key=_valid(origin.key)))
    return found


def from_wire(error: stream_pb2.Error) -> StokerError:
    """Return what :func:`to_wire` was given, as a class of :mod:`stoker.errors`; the trace is a note on it.

    A type that is not known here becomes a StokerError that names it.
    """
    made = _made(error)
    if error.trace:
        made.add_note(f"At the worker:\n{error.trace.rstrip()}")
    return made


def _made(error: stream_pb2.Error) -> StokerError:
    known = _TYPES.get(error.type)
    if known is None:
        return StokerError(f"{error.type or 'an error without a name'}: {error.text}".removesuffix(": "))
    if issubclass(known, SampleError):
        origin = error.origin
        where = SampleOrigin(origin.url, origin.row, origin.key) if error.HasField("origin") else None
        return known(error.text, op=error.op or None, origin=where)
    return known(error.text)


def _full_name(found: type) -> str:
    return found.__qualname__ if found.__module__ == "builtins" else f"{found.__module__}.{found.__qualname__}"


def _text(text: str) -> str:
    cleaned = _clean(text)
    return cleaned if len(cleaned) <= MAX_TEXT_CHARS else f"{cleaned[:MAX_TEXT_CHARS]}…"


def _clean(text: str) -> str:
    return without_secrets(_valid(text))


def _valid(text: str) -> str:
    """Names out of archives may hold bytes that are no text; the wire takes none of those."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
