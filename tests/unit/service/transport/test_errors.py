"""Errors come out of the wire as the classes they were."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import stoker.formats.tar
import stoker.storage.retry  # brings subclasses of its own
from stoker import errors
from stoker.errors import (
    DataError,
    MissingDependencyError,
    NotFoundError,
    SampleError,
    SampleOrigin,
    ShardError,
    StokerError,
    StorageError,
    TransientError,
)
from stoker_proto.v1 import stream_pb2
from stoker_service.transport.errors import MAX_TEXT_CHARS, MAX_TRACE_CHARS, from_wire, to_wire


def there_and_back(error: BaseException) -> StokerError:
    return from_wire(stream_pb2.Error.FromString(to_wire(error).SerializeToString()))


def below(found: type[StokerError]) -> Iterator[type[StokerError]]:
    yield found
    for part in found.__subclasses__():
        yield from below(part)


def notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", []))


@pytest.mark.parametrize("found", sorted(set(below(StokerError)), key=str))
def test_every_error_has_a_way_through_the_wire(found: type[StokerError]) -> None:
    sent = found.__new__(found)
    Exception.__init__(sent, "what is wrong")
    sent.reason, sent.op, sent.origin = "what is wrong", None, None  # type: ignore[attr-defined]  # a SampleError has them
    made = there_and_back(sent)
    assert str(made) == "what is wrong"
    assert isinstance(sent, type(made))
    assert type(made) is found or found.__module__ != errors.__name__


def test_a_bad_sample_keeps_its_reason_op_and_origin() -> None:
    origin = SampleOrigin("s3://b/0.tar", 7, "k7")
    sent = SampleError("cut short", op="DecodeImage('jpg')", origin=origin)
    made = there_and_back(sent)
    assert isinstance(made, SampleError)
    assert (made.reason, made.op, made.origin) == (sent.reason, sent.op, sent.origin)
    assert str(made) == str(sent)
    bare = there_and_back(SampleError("bad"))
    assert isinstance(bare, SampleError)
    assert (bare.op, bare.origin) == (None, None)


def test_a_class_that_the_other_side_may_not_have_goes_as_the_one_above_it() -> None:
    assert type(there_and_back(stoker.formats.tar.TarError("bad header", 512))) is DataError
    assert type(there_and_back(stoker.storage.retry.ThrottledError("slow down"))) is TransientError

    class OddError(ShardError):
        pass

    assert type(there_and_back(OddError("odd"))) is ShardError


def test_a_storage_error_with_an_errno_keeps_its_text() -> None:
    made = there_and_back(StorageError(5, "Input/output error"))
    assert type(made) is StorageError
    assert str(made) == "[Errno 5] Input/output error"
    assert type(there_and_back(NotFoundError("x"))) is NotFoundError
    assert isinstance(there_and_back(MissingDependencyError("pip install x")), ImportError)


class UsersError(Exception):
    """An error of a user's function."""


class MuteError(Exception):
    """An error that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error, text",
    [
        (ValueError("boom"), "ValueError: boom"),
        (KeyError("boom"), "KeyError: 'boom'"),
        (ValueError(), "ValueError"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (UsersError("boom"), "test_errors.UsersError: boom"),
        (MuteError(), "test_errors.MuteError: <exception str() failed>"),
    ],
    ids=lambda found: type(found).__name__,
)
def test_other_exceptions_become_a_stoker_error_that_names_them(error: BaseException, text: str) -> None:
    made = there_and_back(error)
    assert type(made) is StokerError
    assert str(made).endswith(text)


def test_an_error_of_a_newer_worker_is_named() -> None:
    assert str(from_wire(stream_pb2.Error(type="QuotaError", text="too many"))) == "QuotaError: too many"
    assert str(from_wire(stream_pb2.Error())) == "an error without a name"


def test_the_trace_shows_where_it_arose_and_its_causes() -> None:
    try:
        try:
            raise OSError("disk on fire")
        except OSError as error:
            raise ShardError("s3://b/0.tar at 512: no tar header") from error
    except ShardError as error:
        made = there_and_back(error)
    assert "disk on fire" in notes(made)
    assert "test_the_trace_shows" in notes(made)
    assert "At the worker" in notes(made)


def test_what_signs_an_address_does_not_travel() -> None:
    secret = "https://me:hunter2@host/x.tar?X-Amz-Signature=abcdef"
    try:
        raise OSError(f"GET {secret} failed")
    except OSError as error:
        cause = error
    made = StorageError(f"{secret}: gone")
    made.__cause__ = cause
    text = str(to_wire(made)) + str(there_and_back(made)) + notes(there_and_back(made))
    assert "hunter2" not in text
    assert "abcdef" not in text
    assert "host/x.tar" in text


def test_texts_are_bounded_and_bytes_that_are_no_text_are_shown() -> None:
    wire = to_wire(ValueError("x" * 100_000))
    assert len(wire.text) <= MAX_TEXT_CHARS + 1
    assert len(wire.trace) <= MAX_TRACE_CHARS
    origin = SampleOrigin("file:///a\udcff.tar", 0, "\udcfe")
    made = there_and_back(SampleError("bad\udcff", origin=origin))
    assert str(made) == "file:///a\\udcff.tar row 0 (key '\\\\udcfe'): bad\\udcff"
