"""How a URL is taken apart.

Three kinds: plain paths and ``file://`` (one normal form, ``file:///absolute/path``), URLs of objects
(``scheme://bucket/key``), and web addresses. A local name or a key stands in a URL as it is: no percent
decoding, and ``?`` and ``#`` mean themselves, as in fsspec. Only ``http(s)`` has percent codes and queries.
"""

# pathlib would resolve links and drop the slash at the end
# ruff: noqa: PTH100, PTH111

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from stoker.errors import SpecError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)(?:://|::)")
_QUERY = re.compile(r"\?[^\s'\"<>]*")
_USER = re.compile(r"(?<=://)[^/@\s]*@")

OBJECT_SCHEMES = frozenset({"s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "adl"})
WEB_SCHEMES = frozenset({"http", "https"})


@dataclass(frozen=True, slots=True)
class Location:
    """``root`` is what one client serves (``s3://bucket``, ``https://host:port``, ``file://``); ``key`` the rest."""

    scheme: str
    root: str
    key: str


def scheme_of(url: str) -> str:
    """The scheme in lower case; ``file`` for a plain path."""
    match = _SCHEME.match(url)
    return match.group(1).lower() if match else "file"


def normalize(url: str | os.PathLike[str]) -> str:
    """Bring plain and relative paths to ``file:///absolute/path``; other URLs stay as they are.

    A slash at the end is kept: for a listing, ``/data/`` is a folder and ``/data`` a prefix.
    """
    text = os.fspath(url)
    if not text:
        raise SpecError("an empty URL: expected a path such as /data/train.tar or a URL such as s3://bucket/train.tar")
    if "\0" in text:
        raise SpecError(f"a URL cannot hold a zero byte: {text!r}")
    if scheme_of(text) != "file":
        return text
    return "file://" + _absolute(_strip_file_scheme(text))


def local_path(url: str) -> str:
    """The absolute path that a plain path or a ``file://`` URL means."""
    return normalize(url)[len("file://") :]


def locate(url: str) -> Location:
    """Take a full URL apart."""
    normal = normalize(url)
    scheme = scheme_of(normal)
    if scheme == "file":
        return Location(scheme, "file://", normal[len("file://") :])
    head, _, rest = normal.partition("://")
    host, _, key = rest.partition("/")
    if scheme in WEB_SCHEMES and "?" in host:
        host, _, query = host.partition("?")
        key = f"?{query}/{key}" if key else f"?{query}"
    if scheme in OBJECT_SCHEMES | WEB_SCHEMES and not host:
        raise SpecError(f"{url!r} names no {'host' if scheme in WEB_SCHEMES else 'bucket'}: expected {head}://NAME/…")
    return Location(scheme, f"{head}://{host}", key)


def shown(url: str) -> str:
    """The URL as logs and errors may show it: without the user part and the query, where signatures live."""
    if scheme_of(url) not in WEB_SCHEMES:
        return normalize(url)
    return without_secrets(url)


def without_secrets(text: str) -> str:
    """Cut queries and user parts from every web address inside a text."""
    return _QUERY.sub("?…", _USER.sub("", text))


def _strip_file_scheme(text: str) -> str:
    if not text.lower().startswith("file:/"):
        return os.path.expanduser(text) if text.startswith("~") else text
    path = text.partition(":")[2]
    path = path.removeprefix("//localhost") if path.startswith("//localhost/") else path.removeprefix("//")
    if not path.startswith("/"):
        raise SpecError(f"{text!r} is not absolute: write file:///absolute/path, or the plain path {path!r}")
    return path


def _absolute(path: str) -> str:
    absolute = os.path.abspath(path)
    is_folder = path.endswith("/") and absolute != "/"
    return absolute + "/" if is_folder else absolute
