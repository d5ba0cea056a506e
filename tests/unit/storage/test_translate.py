"""Answers of a real server become errors that say who must act and never repeat a secret."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError

from stoker.errors import AccessError, NotFoundError, StorageError, TransientError
from stoker.storage.objects import ObjectStore
from stoker.storage.retry import ShortAnswerError, ThrottledError
from stoker.storage.translate import translate
from support.faulty_http import FaultyServer, Status, run_faulty_http

OPTIONS = {"access_key_id": "AKIDSECRET", "secret_access_key": "KEYSECRET", "region": "us-east-1", "timeout": "5s"}


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with run_faulty_http() as running:
        yield running


@pytest.mark.parametrize(
    "status, code, kind, words",
    [
        (400, "ExpiredToken", AccessError, "expired or wrong .HTTP 400 ExpiredToken"),
        (400, "InvalidArgument", StorageError, "HTTP 400 InvalidArgument"),
        (400, "RequestTimeout", TransientError, "HTTP 400 RequestTimeout"),
        (401, "", AccessError, "HTTP 401"),
        (403, "AccessDenied", AccessError, "HTTP 403 AccessDenied"),
        (404, "NoSuchKey", NotFoundError, "nothing lies at"),
        (404, "NoSuchBucket", NotFoundError, "bucket of s3://bucket/x.tar does not exist"),
        (408, "", TransientError, "HTTP 408"),
        (416, "", ShortAnswerError, "end"),
        (429, "", ThrottledError, "fewer requests .HTTP 429"),
        (500, "InternalError", TransientError, "HTTP 500 InternalError"),
        (501, "NotImplemented", StorageError, "HTTP 501"),
        (502, "", TransientError, "HTTP 502"),
        (503, "SlowDown", ThrottledError, "HTTP 503 SlowDown"),
        (504, "", TransientError, "HTTP 504"),
        (301, "PermanentRedirect", StorageError, "another region"),
    ],
)
def test_every_status_has_its_class(
    server: FaultyServer, status: int, code: str, kind: type[StorageError], words: str
) -> None:
    server.put("bucket/x.tar", b"0123456789", [Status(status, code)])
    store = ObjectStore("s3", {**OPTIONS, "endpoint": server.url}, 5.0)
    with pytest.raises(StorageError, match=words) as caught:
        store.read("s3://bucket/x.tar", 0, 5)
    assert type(caught.value) is kind
    assert "SECRET" not in "".join(_chain(caught.value))


def _chain(error: BaseException | None) -> Iterator[str]:
    """What a traceback would show."""
    while error is not None:
        yield str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_nobody_listens_is_transient() -> None:
    with pytest.raises(TransientError, match="cannot be reached"):
        ObjectStore("http", {}, 5.0).read("http://127.0.0.1:1/x.tar", 0, 5)


def test_a_certificate_that_nobody_signed_is_not() -> None:
    error = GenericError(
        "Generic S3 error: error sending request\n kind: Connect, invalid peer certificate: UnknownIssuer"
    )
    assert type(translate(error, "s3://b/x", has_answered=True)) is StorageError


@pytest.mark.parametrize("has_answered, kind", [(False, AccessError), (True, TransientError)])
def test_credentials_that_cannot_be_fetched(has_answered: bool, kind: type[StorageError]) -> None:
    """At the start nobody gave any; in mid-run the next try may bring them (pain 50)."""
    text = (
        "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1ms - "
        "Server returned non-2xx status code: 500 Internal Server Error: x"
    )
    error = translate(GenericError(text), "s3://b/x", has_answered=has_answered)
    assert type(error) is kind
    assert "credentials" in str(error)


def test_what_a_server_says_is_not_repeated() -> None:
    text = (
        "not allowed: Error performing GET http://h/x?X-Amz-Signature=SECRET - status code: 403 Forbidden: "
        "<Error><Code>SignatureDoesNotMatch</Code><StringToSign>SECRET</StringToSign></Error>"
    )
    error = translate(PermissionDeniedError(text), "s3://b/x", has_answered=True)
    assert str(error) == (
        "s3://b/x: the store refused (HTTP 403 SignatureDoesNotMatch): check credentials, rights and the name"
    )


def test_an_unknown_error_is_worth_a_try_and_shows_no_query() -> None:
    error = translate(
        GenericError("Generic HTTP error: odd thing at http://h/x?sig=SECRET\n\nDebug"), "u", has_answered=True
    )
    assert type(error) is TransientError
    assert str(error) == "Generic HTTP error: odd thing at http://h/x?…"


@pytest.mark.parametrize("name", ["a//b", "../x", "./x"])
def test_names_that_obstore_cannot_say(server: FaultyServer, name: str) -> None:
    store = ObjectStore("s3", {**OPTIONS, "endpoint": server.url}, 5.0)
    with pytest.raises(StorageError, match="cannot address this name"):
        store.read(f"s3://bucket/{name}", 0, 1)
