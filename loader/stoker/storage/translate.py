"""The one place where obstore's errors become Stoker's.

obstore tells little by class and much by text: status, error code and kind of failure are read from it. The text itself
is never shown, because a server's answer may repeat keys and signatures.
"""

from __future__ import annotations

import re

from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

from stoker.errors import AccessError, NotFoundError, StorageError, TransientError
from stoker.storage.retry import ShortAnswerError, ThrottledError
from stoker.storage.urls import without_secrets

_STATUS = re.compile(r"\bstatus(?: code)?: (\d{3})\b")
_CODE = re.compile(r"<Code>(\w{1,64})</Code>|\"reason\":\s*\"(\w{1,64})\"")
_KIND = re.compile(r"\bkind: (Timeout|Interrupted|Connect)\b")
_CREDENTIALS = re.compile(r"169\.254\.\d+\.\d+|metadata\.google\.internal|performing token request|sts\.|/oauth2/")
_CERTIFICATE = re.compile(r"certificate|UnknownIssuer", re.IGNORECASE)
_BAD_RANGE = re.compile(r"NotPartial|RangeNotSupported|NoContentRange|UnexpectedRange")
_REFUSED_CODES = frozenset(
    {"ExpiredToken", "InvalidToken", "TokenRefreshRequired", "AuthorizationHeaderMalformed", "InvalidAccessKeyId"}
)
_THROTTLE_STATUS = frozenset({429, 503})
_PASSING_STATUS = frozenset({408, 425, 500, 502, 504, 507, 509, 520, 522, 524})
_KINDS = {
    "Timeout": "no complete answer in time (stalled, or too slow)",
    "Interrupted": "the answer was cut on the way",
    "Connect": "the server cannot be reached",
}


def translate(error: Exception, url: str, *, has_answered: bool) -> StorageError:
    """What ``error`` means for the object at ``url``, which must be fit to be shown.

    ``has_answered``: this client has worked before, so credentials that cannot be fetched may come back.
    """
    text = str(error)
    if isinstance(error, FileNotFoundError):
        missing = "the bucket of " if "NoSuchBucket" in text else ""
        return NotFoundError(f"nothing lies at {url}" if not missing else f"the bucket of {url} does not exist")
    if isinstance(error, (PermissionDeniedError, UnauthenticatedError)):
        return AccessError(f"{url}: the store refused ({_answer(text)}): check credentials, rights and the name")
    if isinstance(error, ValueError):
        return StorageError(f"{url}: obstore cannot address this name: {without_secrets(_first_line(text))}")
    return _by_text(text, url, has_answered=has_answered)


def _by_text(text: str, url: str, *, has_answered: bool) -> StorageError:
    if _CREDENTIALS.search(_first_line(text)):
        return _credentials(text, url, has_answered=has_answered)
    if status := _STATUS.search(text):
        return _by_status(int(status.group(1)), text, url)
    if "BareRedirect" in text:
        return StorageError(f"{url}: the bucket lies in another region; set storage_options['region']")
    if _CERTIFICATE.search(text):
        return StorageError(f"{url}: the server's certificate is not trusted; see storage_options['root_certificate']")
    return TransientError(_passing_reason(text))


def _passing_reason(text: str) -> str:
    if _BAD_RANGE.search(text):
        return "the server answered with another range than the one asked for (empty, or it does not serve ranges)"
    if kind := _KIND.search(text):
        return _KINDS[kind.group(1)]
    return without_secrets(_first_line(text))


def _by_status(status: int, text: str, url: str) -> StorageError:
    if status == 416:
        return ShortAnswerError("the range lies behind the object's end")
    code = _code(text)
    if status in _THROTTLE_STATUS or code == "SlowDown":
        return ThrottledError(f"the store asks for fewer requests ({_answer(text)})")
    if status in _PASSING_STATUS or code == "RequestTimeout":
        return TransientError(f"the store failed ({_answer(text)})")
    if code in _REFUSED_CODES:
        return AccessError(f"{url}: the credentials are expired or wrong ({_answer(text)})")
    return StorageError(f"{url}: the store answered {_answer(text)}")


def _credentials(text: str, url: str, *, has_answered: bool) -> StorageError:
    if has_answered:
        return TransientError(f"credentials could not be renewed ({_answer(text)})")
    return AccessError(
        f"{url}: no credentials found; give them by environment or storage_options, "
        "or read without: storage_options={'anonymous': 'true'}"
    )


def _answer(text: str) -> str:
    """Status and code of an answer, such as ``HTTP 503 SlowDown``."""
    status = _STATUS.search(text)
    found = f"HTTP {status.group(1)}" if status else "no status"
    code = _code(text)
    return f"{found} {code}" if code else found


def _code(text: str) -> str:
    match = _CODE.search(text)
    return (match.group(1) or match.group(2)) if match else ""


def _first_line(text: str) -> str:
    return text.partition("\n")[0].partition(" status code:")[0]
