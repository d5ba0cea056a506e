"""Objects in S3, Google Cloud Storage, Azure or on a web server, through obstore.

Calls release the GIL; the bytes are obstore's own, not copied. Clients are kept per process, one for each bucket
and set of options. obstore's threads do not survive a fork: a child of a process that has read gets an
error, not a hang.
"""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, HTTPStore, S3Store

from stoker.errors import AccessError, SpecError, StorageError, TransientError
from stoker.storage.bodies import Bodies
from stoker.storage.checksum import TagCheck
from stoker.storage.credentials import Credentials, credentials_of
from stoker.storage.options import ObstoreOptions, hide_values, obstore_options, unknown_key
from stoker.storage.own_options import split_own
from stoker.storage.peek import MAX_NAMES
from stoker.storage.retry import CorruptAnswerError
from stoker.storage.store import ObjectInfo
from stoker.storage.translate import translate
from stoker.storage.urls import Location, locate, shown
from stoker.storage.versions import changed, contradicts, strong_tag, version_of

_FAMILIES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "http": "http", "https": "http"}
_MAX_CLIENTS = 256  # one per bucket; a web address with a query has one of its own
_LIST_PAGE = 1000
_NO_RETRIES: Any = {"max_retries": 0}  # RetryingStore is the only one who repeats

_Obstore = S3Store | GCSStore | AzureStore | HTTPStore


@dataclass(slots=True)
class _Client:
    store: _Obstore
    has_answered: bool = False
    tags: TagCheck = field(default_factory=TagCheck)
    bodies: Bodies = field(default_factory=Bodies)


_clients: OrderedDict[tuple[object, ...], _Client] = OrderedDict()
_first_pid: int | None = None


class ObjectStore:
    """Blocking access through obstore; one attempt per call, safe from any number of threads."""

    def __init__(self, scheme: str, options: Mapping[str, Any], timeout_s: float) -> None:
        self._scheme = scheme
        self._family = _FAMILIES.get(scheme, "az")
        self._given = dict(options)
        self._checks_bodies = split_own(options)[0].checks_bodies
        self._options = obstore_options(self._family, options, timeout_s)
        identity = self._options.identity
        self._credentials = None if identity is None else credentials_of(identity)
        self._identity = (scheme, self._options.timeout_s, *sorted((k, str(v)) for k, v in options.items()))

    @property
    def timeout_s(self) -> float:
        """The longest that one request may last."""
        return self._options.timeout_s

    def head(self, url: str) -> ObjectInfo:
        try:
            with self._asking(url) as (client, path):
                return _info(url, obstore.head(client.store, path))
        except StorageError as error:
            if self._family != "http" or isinstance(error, TransientError):
                raise
            return self._head_by_get(url, error)

    def list(self, prefix: str, *, max_depth: int | None = None) -> Iterator[ObjectInfo]:
        """All objects whose URL begins with ``prefix``, sorted; the markers of empty folders are left out."""
        if self._family == "http":
            raise StorageError(f"{shown(prefix)}: a web server cannot be listed; name the files: {{000..146}}")
        location = locate(prefix)
        folder = location.key.rpartition("/")[0]
        with self._asking(f"{location.root}/{folder}") as (client, path):
            if max_depth == 0:
                pages: Iterable[Sequence[Any]] = [obstore.list_with_delimiter(client.store, path or None)["objects"]]
            else:
                pages = obstore.list(client.store, path or None, chunk_size=_LIST_PAGE)
            found = [_info(f"{location.root}/{item['path']}", item) for page in pages for item in page]
        yield from sorted(_without_markers(found, prefix), key=lambda item: item.url)

    def peek(self, folder: str) -> Sequence[str]:
        """Names from the first page of the listing, in folders below too."""
        location = locate(folder)
        with self._asking(folder.rstrip("/")) as (client, path):
            page = next(iter(obstore.list(client.store, path or None, chunk_size=MAX_NAMES)), [])
        return [item["path"][len(location.key) :] for item in page]

    def read(self, url: str, start: int, stop: int, version: str = "") -> memoryview:
        """The bytes ``[start, stop)``, read-only; fewer or more where the server answers so.

        Raises ChangedError if they are of another version, CorruptAnswerError if the ETag is the MD5 of others.
        """
        with self._asking(url) as (client, path):
            answer = obstore.get(client.store, path, options={"range": (start, stop)})
            meta: Mapping[str, Any] = answer.meta  # a dictionary made anew by each access
            if contradicts(meta, version):
                raise changed(shown(url), expected=version, found=version_of(meta))
            tag = strong_tag(meta)
            body = client.bodies.receive(answer, tag)
        is_whole = start == 0 and stop == meta["size"] == len(body)
        if is_whole and self._checks_bodies and not client.tags.accepts(path, tag, body):
            raise CorruptAnswerError("the body does not have the MD5 that the store gave as ETag")
        return body

    def write(self, url: str, payload: bytes) -> None:
        """Put a whole object; it appears when it is complete."""
        if self._family == "gs" and str(self._options.config.get("skip_signature", "")).lower() in ("true", "1"):
            # obstore would look for credentials all the same, and each try of that takes seconds
            raise AccessError(f"{shown(url)}: without credentials (skip_signature) nothing can be written")
        with self._asking(url) as (client, path):
            obstore.put(client.store, path, payload)

    def _head_by_get(self, url: str, error: StorageError) -> ObjectInfo:
        """Signed addresses and some servers allow GET alone (obstore calls a 405 not found): a range tells the size."""
        try:
            with self._asking(url) as (client, path):
                return _info(url, obstore.get(client.store, path, options={"range": (0, 1)}).meta)
        except StorageError:
            raise error from None

    @contextlib.contextmanager
    def _asking(self, url: str) -> Iterator[tuple[_Client, str]]:
        _refuse_forked()
        if self._credentials is not None:
            self._credentials.ensure()
        client, path = self._client(url)
        try:
            yield client, path
            client.has_answered = True
        except (BaseError, FileNotFoundError, ValueError) as error:
            # the cause is cut off: its text may hold secrets
            raise self._meaning(translate(error, shown(url), has_answered=client.has_answered)) from None

    def _meaning(self, error: StorageError) -> StorageError:
        """The error itself, unless the store refused and there are newer credentials to try."""
        if not isinstance(error, AccessError) or self._credentials is None:
            return error
        self._credentials.ensure()
        return TransientError(f"{error}; there are newer ones now") if self._credentials.refused() else error

    def _client(self, url: str) -> tuple[_Client, str]:
        location = locate(url)
        root, path = _web_root_and_path(url, location) if self._family == "http" else (location.root, location.key)
        key = (root, self._identity)
        client = _clients.get(key)
        if client is None:
            client = _clients.setdefault(key, _Client(self._make(root)))
            while len(_clients) > _MAX_CLIENTS:
                _clients.popitem(last=False)
        return client, path

    def _make(self, root: str) -> _Obstore:
        try:
            return _make_client(self._scheme, root, self._options, self._credentials)
        except (BaseError, ValueError) as error:
            text = str(error)
            for name in self._given:
                if f"'{name.lower()}' is not valid" in text or f"key: {name.lower()}." in text:
                    raise SpecError(unknown_key(self._family, name)) from None
            reason = hide_values(text.partition("\n")[0], self._given)
            raise SpecError(f"storage_options for {shown(root)}: {reason}") from None


def _make_client(scheme: str, root: str, options: ObstoreOptions, credentials: Credentials | None) -> _Obstore:
    config: Any = options.config
    common: Any = {"client_options": options.client, "retry_config": _NO_RETRIES}
    bucket = root.partition("://")[2]
    match _FAMILIES.get(scheme, scheme):
        case "s3":
            if credentials is not None:
                common["credential_provider"] = credentials
            return S3Store(bucket, config=config, **common)
        case "gs":
            return GCSStore(bucket, config=config, **common)
        case "http":
            return HTTPStore(root, **common)
        case "abfs" | "abfss":
            return AzureStore.from_url(root, config=config, **common)
        case _:
            return AzureStore(bucket, config=config, **common)


def _web_root_and_path(url: str, location: Location) -> tuple[str, str]:
    """Host and decoded path; an address that obstore would write differently is its own root."""
    segments = [unquote(segment) for segment in location.key.split("/")]
    is_plain = "?" not in url and all(
        segment not in ("", ".", "..") and "/" not in segment and "\ufffd" not in segment for segment in segments
    )
    if is_plain:
        return location.root, "/".join(segments)
    return quote(url, safe=":/?#[]@!$&'()*+,;=%~"), ""


def _info(url: str, meta: Mapping[str, Any]) -> ObjectInfo:
    return ObjectInfo(url, int(meta["size"]), version_of(meta))


def _without_markers(found: list[ObjectInfo], prefix: str) -> list[ObjectInfo]:
    """Objects of size 0 named like a folder are what consoles make for empty folders."""
    matching = [item for item in found if item.url.startswith(prefix)]
    empty = {item.url for item in matching if item.size_bytes == 0}
    if not empty:
        return matching
    folders = {item.url.rpartition("/")[0] for item in matching}
    return [item for item in matching if item.url not in empty or item.url not in folders]


def _refuse_forked() -> None:
    global _first_pid  # noqa: PLW0603  # obstore's threads are global to the process, so is this
    pid = os.getpid()
    if _first_pid is None:
        _first_pid = pid
    elif _first_pid != pid:
        raise StorageError(
            f"process {pid} was forked from {_first_pid}, which had read from object storage: its threads are gone and "
            "a read would hang. Start processes by 'spawn' or 'forkserver', or fork before the first read"
        )
