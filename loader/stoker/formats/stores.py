"""The stores that a source's URLs lie in, opened when first needed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoker.errors import NotFoundError, StorageError
from stoker.storage.daemon_pool import DaemonPool
from stoker.storage.peers import Peers
from stoker.storage.ranges import join
from stoker.storage.store import ObjectInfo, ObjectRange, Store
from stoker.storage.urls import scheme_of
from stoker.storage.use import Use

if TYPE_CHECKING:
    from stoker.storage.cache import ChunkCache

Opener = Callable[[str, Mapping[str, str]], Store]
_LISTED_FROM = 16
_HEADS_IN_FLIGHT = 16
_READS_IN_FLIGHT = 128
_LOCAL_OPTIONS = ("chaos",)
"""The storage options that hold for files too."""

_ENDPOINTS = ("endpoint", "endpoint_url", "base_url", "account_name")
"""The storage options that say which server is meant."""


@dataclass(frozen=True, slots=True)
class Access:
    """How stores are opened and what stands before them: a cache of this machine, the other workers of a fleet."""

    opener: Opener | None = None
    cache: ChunkCache | None = None
    peers: Peers | None = None


DIRECT = Access()


class Stores:
    """One store per scheme, behind a cache and peers where there are any. Safe for many threads."""

    def __init__(self, options: Mapping[str, str] | None, access: Access = DIRECT) -> None:
        self._options = dict(options or {})
        self._local_options = {name: self._options[name] for name in _LOCAL_OPTIONS if name in self._options}
        self._endpoint = next((self._options[name] for name in _ENDPOINTS if name in self._options), "")
        self._opener = access.opener if access.opener is not None else _open_store
        self._cache = access.cache
        self._peers = access.peers
        self._opened: dict[str, Store] = {}
        self._lock = threading.Lock()
        self._pools: dict[int, DaemonPool] = {}

    def of(self, url: str) -> Store:
        scheme = scheme_of(url)
        with self._lock:
            if scheme not in self._opened:
                options = self._options if scheme != "file" else self._local_options
                self._opened[scheme] = self._opener(url, options)
            return self._opened[scheme]

    def range(self, url: str, start: int, stop: int, version: str = "") -> ObjectRange:
        """A range of an object in one of these stores."""
        return ObjectRange(url, start, stop, version, "" if is_local(url) else self._endpoint)

    def read(self, url: str, start: int, stop: int, version: str = "") -> memoryview:
        """Exactly the bytes ``[start, stop)`` from where they lie, whatever the cache or the peers have."""
        return self.of(url).read(url, start, stop, version)

    def read_many(self, ranges: Sequence[ObjectRange], uses: Sequence[Use] | None) -> list[memoryview]:
        """The ranges from the cache, from the worker that owns them, or from where they lie; neighbours in one request.

        Without ``uses`` from where they lie. Raises the StorageError of the first that cannot be read.
        """
        if uses is None:
            return self._origin(ranges)
        if self._peers is None:
            return self.serve(ranges, uses)
        peers = self._peers
        own = [peers.owns(wanted) for wanted in ranges]
        found = self._from_peers(peers, ranges, uses, own)
        self._fill(found, own, lambda missing: self.serve([ranges[i] for i in missing], [uses[i] for i in missing]))
        self._fill(found, [True] * len(ranges), lambda missing: self._origin([ranges[i] for i in missing]))
        return [body for body in found if body is not None]

    def serve(self, ranges: Sequence[ObjectRange], uses: Sequence[Use]) -> list[memoryview]:
        """The ranges from the cache of this machine or from where they lie; no other worker is asked."""
        return self._origin(ranges) if self._cache is None else self._cache.read(ranges, uses, self._origin)

    @property
    def cache_bytes(self) -> int:
        """Bytes that the cache of this process may hold; 0 without one."""
        return 0 if self._cache is None else self._cache.budget_bytes

    def bring(self, ranges: Sequence[ObjectRange], uses: Sequence[Use]) -> None:
        """Have the ranges that this process keeps in its cache; the others are left where they are."""
        if self._cache is None:
            return
        own = [(wanted, use) for wanted, use in zip(ranges, uses, strict=True) if self._is_own(wanted)]
        if own:
            self._cache.bring([wanted for wanted, _ in own], [use for _, use in own], self._origin)

    def _is_own(self, wanted: ObjectRange) -> bool:
        return self._peers is None or self._peers.owns(wanted)

    def forget(self, wanted: ObjectRange) -> None:
        """What the cache has of this range proved wrong."""
        if self._cache is not None:
            self._cache.drop(wanted)

    def read_again(self, wanted: ObjectRange) -> memoryview:
        """A range whose bytes proved wrong, from where it lies; the cache does not give the wrong ones again."""
        self.forget(wanted)
        return self.read(wanted.url, wanted.start, wanted.stop, wanted.version)

    @staticmethod
    def _fill(
        found: list[memoryview | None], wanted: Sequence[bool], read: Callable[[Sequence[int]], Sequence[memoryview]]
    ) -> None:
        missing = [index for index, body in enumerate(found) if body is None and wanted[index]]
        for index, body in zip(missing, read(missing) if missing else (), strict=True):
            found[index] = body

    @staticmethod
    def _from_peers(
        peers: Peers, ranges: Sequence[ObjectRange], uses: Sequence[Use], own: Sequence[bool]
    ) -> list[memoryview | None]:
        found: list[memoryview | None] = [None] * len(ranges)
        foreign = [index for index, is_own in enumerate(own) if not is_own]
        if foreign:
            bodies = peers.read([ranges[index] for index in foreign], [uses[index] for index in foreign])
            for index, body in zip(foreign, bodies, strict=True):
                found[index] = body
        return found

    def _origin(self, ranges: Sequence[ObjectRange]) -> list[memoryview]:
        if len(ranges) == 1:
            return [self._read_whole(ranges[0])]
        joined = join(ranges)
        wholes = [one.whole for one in joined]
        if len(wholes) == 1 or all(is_local(whole.url) for whole in wholes):
            bodies = [self._read_whole(whole) for whole in wholes]
        else:
            bodies = list(self._pool().map(self._read_whole, wholes))
        found = [memoryview(b"")] * len(ranges)
        for one, body in zip(joined, bodies, strict=True):
            for number in one.members:
                wanted = ranges[number]
                found[number] = body[wanted.start - one.whole.start : wanted.stop - one.whole.start]
        return found

    def _read_whole(self, whole: ObjectRange) -> memoryview:
        return self.read(whole.url, whole.start, whole.stop, whole.version)

    def _pool(self) -> DaemonPool:
        """The threads of this process for ranges that are read at once: a fork has none of its parent's."""
        with self._lock:
            pool = self._pools.get(os.getpid())
            if pool is None:
                pool = self._pools[os.getpid()] = DaemonPool(_READS_IN_FLIGHT, "stoker-ranges")
            return pool

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
