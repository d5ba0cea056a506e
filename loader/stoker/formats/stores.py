"""The stores that a source's URLs lie in, opened when first needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from stoker.errors import NotFoundError, StorageError
from stoker.storage.daemon_pool import DaemonPool
from stoker.storage.store import ObjectInfo, Store
from stoker.storage.urls import scheme_of

Opener = Callable[[str, Mapping[str, str]], Store]
_LISTED_FROM = 16
_HEADS_IN_FLIGHT = 16


class Stores:
    """One store per scheme. Safe for many threads."""

    def __init__(self, options: Mapping[str, str] | None, opener: Opener | None = None) -> None:
        self._options = dict(options or {})
        self._opener = opener if opener is not None else _open_store
        self._opened: dict[str, Store] = {}
        self._lock = threading.Lock()

    def of(self, url: str) -> Store:
        scheme = scheme_of(url)
        with self._lock:
            if scheme not in self._opened:
                options = self._options if scheme != "file" else {}
                self._opened[scheme] = self._opener(url, options)
            return self._opened[scheme]

    def read(self, url: str, start: int, stop: int) -> memoryview:
        return self.of(url).read(url, start, stop)

    def heads(self, urls: Sequence[str]) -> list[ObjectInfo]:
        """Size and version of each object, by one listing if they are many. Raises NotFoundError if one is missing."""
        if not urls:
            return []
        if all(is_local(url) for url in urls):
            return [self.of(url).head(url) for url in urls]
        known = self._listed(urls) if len(urls) >= _LISTED_FROM else {}
        missing = [url for url in urls if url not in known]
        with DaemonPool(_HEADS_IN_FLIGHT, "stoker-head") as pool:
            known.update(zip(missing, pool.map(lambda url: self.of(url).head(url), missing), strict=True))
        return [known[url] for url in urls]

    def _listed(self, urls: Sequence[str]) -> dict[str, ObjectInfo]:
        low, high = min(urls), max(urls)
        prefix = low[: next((i for i, letter in enumerate(low) if letter != high[i]), len(low))]
        wanted = set(urls)
        try:
            return {entry.url: entry for entry in self.of(urls[0]).list(prefix) if entry.url in wanted}
        except StorageError:  # no right to list, or nothing that can be listed, such as a web server
            return {}


def is_local(url: str) -> bool:
    return scheme_of(url) == "file"


def exists(stores: Stores, url: str) -> ObjectInfo | None:
    """What lies at ``url``, or None."""
    try:
        return stores.of(url).head(url)
    except NotFoundError:
        return None


def _open_store(url: str, options: Mapping[str, str]) -> Store:
    from stoker.storage.open import open_store  # it may bring obstore

    return open_store(url, options)
