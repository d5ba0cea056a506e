"""The index of tar shards: what changed is scanned, the rest is taken over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from stoker.errors import ClosedError, ShardError, TransientError
from stoker.formats import compressed
from stoker.formats.keys import SPLITS, KeyRule
from stoker.formats.manifest import Shard, identity
from stoker.formats.manifest_file import StoredRows
from stoker.formats.scan import Scan
from stoker.formats.stores import Stores, is_local
from stoker.formats.whole_md5 import WholeMd5
from stoker.formats.window import Window
from stoker.storage.daemon_pool import DaemonPool
from stoker.storage.store import ObjectInfo
from stoker.storage.urls import shown

_LOCAL_THREADS = 4
_REMOTE_THREADS = 16
_MAX_SCANS = 4


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """How far the making of an index is; ``num_bytes`` are those of the shards that must be scanned."""

    num_shards: int
    shards_done: int
    num_bytes: int
    bytes_done: int
    rows_done: int


OnProgress = Callable[[IndexProgress], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """Which shards are taken over, by their number in the old manifest, and which are scanned (None)."""

    entries: tuple[ObjectInfo, ...]
    old: tuple[int | None, ...]

    @property
    def to_scan(self) -> list[ObjectInfo]:
        return [entry for entry, old in zip(self.entries, self.old, strict=True) if old is None]


class Known(Protocol):
    """What a manifest knows of a shard, tar or Parquet."""

    @property
    def url(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def version(self) -> str: ...


def plan(entries: Sequence[ObjectInfo], known: Sequence[Known]) -> Plan:
    """A shard is known if its URL, size and version are those that were scanned; pure."""
    numbers = {(identity(shard.url), shard.size_bytes, shard.version): i for i, shard in enumerate(known)}
    old = (numbers.get((identity(entry.url), entry.size_bytes, entry.version)) for entry in entries)
    return Plan(tuple(entries), tuple(old))


def is_current(planned: Plan, known: Sequence[Known]) -> bool:
    """Whether the old manifest says all: the same shards in the same order."""
    return planned.old == tuple(range(len(known)))


def scan_shard(
    stores: Stores, entry: ObjectInfo, keys: KeyRule, ahead: Executor | None, on_bytes: Callable[[int], None]
) -> tuple[Shard, pa.RecordBatch]:
    """Scan one shard; again, if its bytes are not those that its ETag says and come differently each time.

    Raises ShardError if it is none, StorageError if it cannot be read.
    """
    suspects: set[str] = set()
    while True:
        md5 = WholeMd5(entry.version, entry.size_bytes)
        found: tuple[Shard, pa.RecordBatch] | ShardError
        try:
            found = _scan_once(stores, entry, keys, ahead, on_bytes, md5)
        except ShardError as error:
            found = error
        digest = md5.found()
        if not digest or digest in suspects:  # the same bytes twice: the ETag is no MD5
            if isinstance(found, ShardError):
                raise found
            return found
        suspects.add(digest)
        if len(suspects) == _MAX_SCANS:
            raise TransientError(
                f"{shown(entry.url)}: read {_MAX_SCANS} times, and its bytes differ each time: damaged on the way"
            )


def _scan_once(
    stores: Stores,
    entry: ObjectInfo,
    keys: KeyRule,
    ahead: Executor | None,
    on_bytes: Callable[[int], None],
    md5: WholeMd5,
) -> tuple[Shard, pa.RecordBatch]:
    def read(start: int, stop: int) -> memoryview:
        found = stores.read(entry.url, start, stop, entry.version)
        on_bytes(len(found))
        return found

    window = Window(read, entry.size_bytes, ahead, on_fresh=md5.add)
    is_gzip = compressed.is_gzip(window.at(0, 3))
    said: tuple[str, ...] = ()
    size = entry.size_bytes
    if is_gzip:
        window.close()
        content, whole = compressed.inflate(entry.url, read(0, size))
        said = () if whole else ("its gzip stream breaks off or is damaged",)
        size = len(content)
        window = Window(lambda start, stop: content[start:stop], size)
    scan = Scan(entry.url, window, size, SPLITS[keys])
    try:
        scan.run()
    finally:
        if not is_gzip:
            md5.complete(window)
        window.close()
    shard = Shard(
        entry.url,
        entry.size_bytes,
        entry.version,
        len(scan.rows),
        scan.rows.digest,
        "gzip" if is_gzip else "tar",
        size,
        (*said, *scan.notices),
    )
    return shard, scan.rows.batch()


def scan_changed(
    stores: Stores, planned: Plan, stored: StoredRows | None, keys: KeyRule, on_progress: OnProgress | None
) -> tuple[list[Shard], list[pa.RecordBatch]]:
    """The shards of a plan with their rows: scanned in parallel, or taken over from ``stored``."""
    to_scan = planned.to_scan
    meter = Meter(planned, on_progress)
    width = num_threads(to_scan)
    shards: list[Shard] = []
    batches: list[pa.RecordBatch] = []
    with ExitStack() as stack:
        ahead = stack.enter_context(DaemonPool(width, "stoker-index-read"))
        pool = stack.enter_context(DaemonPool(width, "stoker-index"))
        scanned = [pool.submit(_scan, stores, entry, keys, ahead, meter) for entry in to_scan]
        stack.callback(meter.stop)
        results = iter(scanned)
        for entry, old in zip(planned.entries, planned.old, strict=True):
            if old is None or stored is None:
                shard, batch = next(results).result()
            else:
                shard = replace(stored.shards[old], url=entry.url)
                batch = stored.shard_rows(old)
            shards.append(shard)
            batches.append(batch)
    return shards, batches


def _scan(
    stores: Stores, entry: ObjectInfo, keys: KeyRule, ahead: Executor, meter: Meter
) -> tuple[Shard, pa.RecordBatch]:
    bytes_of_shard = _ShardMeter(entry.size_bytes, meter)
    found = scan_shard(stores, entry, keys, ahead, bytes_of_shard.on_bytes)
    bytes_of_shard.on_end(found[0])
    return found


def num_threads(to_scan: Sequence[ObjectInfo]) -> int:
    """How many shards are looked at at once."""
    return max(1, min(len(to_scan), _LOCAL_THREADS if _all_local(to_scan) else _REMOTE_THREADS))


class _ShardMeter:
    """Counts a shard's bytes as done, each once: some are hopped over, some are read ahead in vain."""

    def __init__(self, size_bytes: int, meter: Meter) -> None:
        self._meter = meter
        self._lock = threading.Lock()
        self._left = size_bytes

    def on_bytes(self, num_bytes: int) -> None:
        with self._lock:
            counted = min(num_bytes, self._left)
            self._left -= counted
        self._meter.report(0, counted, 0)

    def on_end(self, shard: Shard) -> None:
        with self._lock:
            rest, self._left = self._left, 0
        self._meter.report(1, rest, shard.num_rows)


class Meter:
    """Adds up what the threads report that look at shards."""

    def __init__(self, planned: Plan, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._is_stopped = False
        to_scan = planned.to_scan
        self._now = IndexProgress(len(to_scan), 0, sum(entry.size_bytes for entry in to_scan), 0, 0)

    def stop(self) -> None:
        """Nobody waits for the index any more: the scans end with their next read."""
        self._is_stopped = True

    def report(self, shards: int, num_bytes: int, rows: int) -> None:
        if self._is_stopped:
            raise ClosedError("the index is no longer waited for")
        if self._on_progress is None:
            return
        with self._lock:
            self._now = replace(
                self._now,
                shards_done=self._now.shards_done + shards,
                bytes_done=self._now.bytes_done + num_bytes,
                rows_done=self._now.rows_done + rows,
            )
            self._on_progress(self._now)


def _all_local(entries: Sequence[ObjectInfo]) -> bool:
    return all(is_local(entry.url) for entry in entries)
