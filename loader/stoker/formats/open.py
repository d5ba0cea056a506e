"""From a source to a data set that can be read: the manifest is found, brought up to date, or made."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from stoker.errors import NotFoundError, StorageError, TransientError
from stoker.formats import (
    file_table,
    index,
    location,
    manifest,
    manifest_file,
    parquet_groups,
    parquet_index,
    parquet_manifest_file,
)
from stoker.formats.dataset import Dataset
from stoker.formats.file_listing import read_listing
from stoker.formats.file_table import FileTable
from stoker.formats.files import FilesDataset
from stoker.formats.folder_listing import list_folder
from stoker.formats.index import IndexProgress, OnProgress
from stoker.formats.manifest import Manifest
from stoker.formats.manifest_file import StoredRows
from stoker.formats.notices import announce
from stoker.formats.parquet import ManifestError
from stoker.formats.parquet_dataset import ParquetDataset
from stoker.formats.parquet_manifest import ParquetManifest
from stoker.formats.source import Files, Parquet, Source, Tar, is_listing
from stoker.formats.stamp import is_current
from stoker.formats.stores import DIRECT, Access, Stores
from stoker.formats.tar_dataset import TarDataset
from stoker.storage.patterns import expand

__all__ = ["Built", "IndexProgress", "build_manifest", "open_dataset"]

T = TypeVar("T")

_LOG = logging.getLogger("stoker")


@dataclass(frozen=True, slots=True)
class Built:
    """A manifest with what was done for it: shards scanned (files listed), and those taken over from before."""

    manifest: Manifest | FileTable | ParquetManifest
    num_scanned: int
    num_kept: int


def open_dataset(source: Source, *, progress: OnProgress | None = None, access: Access = DIRECT) -> Dataset:
    """Open a source: its manifest is read, what changed since is scanned again, what is wrong is warned of.

    ``progress`` is called from scanning threads, one at a time. ``access`` says what stands before the stores.
    Raises StorageError, ShardError for a shard that is none, SpecError for patterns or columns that are wrong.
    """
    stores = Stores(source.storage_options, access)
    match source:
        case Tar():
            found, _ = _index_tar(source, stores, progress)
            announce(found.notices)
            return TarDataset(source, stores, found)
        case Files():
            return FilesDataset(source, stores, _known_files(source, stores) or _list_files(source, stores, progress))
        case Parquet():
            groups, _ = _index_parquet(source, stores, progress)
            announce(groups.notices)
            return ParquetDataset(source, stores, groups)


def build_manifest(source: Source, progress: OnProgress | None = None, access: Access = DIRECT) -> Built:
    """Make the manifest of a source, or bring it up to date, and save it. Files are always listed again.

    Whoever calls shows ``manifest.notices``: nothing is warned of here.
    """
    stores = Stores(source.storage_options, access)
    match source:
        case Tar():
            found, num_scanned = _index_tar(source, stores, progress)
            return Built(found, num_scanned, len(found.shards) - num_scanned)
        case Files():
            table = _list_files(source, stores, progress)
            return Built(table, table.num_rows, 0)
        case Parquet():
            groups, num_read = _index_parquet(source, stores, progress)
            return Built(groups, num_read, len(groups.shards) - num_read)


def _index_tar(source: Tar, stores: Stores, progress: OnProgress | None) -> tuple[Manifest, int]:
    """The manifest that is true now, and how many shards were scanned for it."""
    entries = stores.heads(expand(source.patterns, source.storage_options or {}))
    nearest = ""
    for place, found in _kept(source, stores):
        if index.is_current(index.plan(entries, found.shards), found.shards):
            return manifest.with_urls(found, [entry.url for entry in entries]), 0
        nearest = nearest or place
    stored = _stored(source, stores, nearest)
    planned = index.plan(entries, stored.shards if stored is not None else ())
    shards, batches = index.scan_changed(stores, planned, stored, source.keys, progress)
    url = location.save(stores, source, lambda place: manifest_file.encode(place, source.keys, shards, batches))
    return Manifest(url, source.keys, tuple(shards), manifest.rows_of(batches)), len(planned.to_scan)


def _index_parquet(source: Parquet, stores: Stores, progress: OnProgress | None) -> tuple[ParquetManifest, int]:
    """The manifest that is true now, and of how many shards the footer was read for it."""
    entries = stores.heads(expand(source.patterns, source.storage_options or {}))
    nearest: ParquetManifest | None = None
    for _, found in _loaded(source, lambda place: parquet_manifest_file.load(stores, place)):
        if index.is_current(index.plan(entries, found.shards), found.shards):
            return _noticed(parquet_index.with_urls(found, [entry.url for entry in entries]), source), 0
        nearest = nearest or found
    planned = index.plan(entries, nearest.shards if nearest is not None else ())
    layouts, shards = parquet_index.read_changed(stores, planned, nearest, progress)
    url = location.save(stores, source, lambda place: parquet_manifest_file.encode(place, layouts, shards))
    return _noticed(ParquetManifest(url, layouts, shards), source), len(planned.to_scan)


def _noticed(found: ParquetManifest, source: Parquet) -> ParquetManifest:
    return replace(found, notices=parquet_groups.notices(found, source.columns))


def _kept(source: Tar, stores: Stores) -> Iterator[tuple[str, Manifest]]:
    """The manifests of this source that lie in their places."""
    for place, found in _loaded(source, lambda place: manifest_file.load(stores, place)):
        if found.keys == source.keys:
            yield place, found


def _loaded(source: Source, load: Callable[[str], T]) -> Iterator[tuple[str, T]]:
    """What can be loaded from the places of a source's index; damaged ones are passed over."""
    for place in location.places(source):
        try:
            found = _read_twice(load, place)
        except TransientError:
            raise
        except StorageError:  # nothing there, or nothing that may be read
            continue
        except ManifestError as error:
            _LOG.info("the index is made again: %s", error)
            continue
        yield place, found


def _read_twice(load: Callable[[str], T], place: str) -> T:
    """Load from a place; once more if that came damaged, which may have been on the way."""
    try:
        return load(place)
    except ManifestError:
        return load(place)


def _stored(source: Tar, stores: Stores, place: str) -> StoredRows | None:
    if not place:
        return None
    try:
        stored = _read_twice(lambda url: StoredRows(stores, url), place)
    except (NotFoundError, ManifestError):  # replaced or removed by another process since it was found
        return None
    return stored if stored.keys == source.keys else None


def _known_files(source: Files, stores: Stores) -> FileTable | None:
    """The listing that was kept, if it is still true."""
    kept = _loaded(source, lambda place: file_table.load(stores, place))
    return next((found for _, found in kept if is_current(source, stores, found)), None)


def _list_files(source: Files, stores: Stores, progress: OnProgress | None) -> FileTable:
    def on_rows(num_rows: int) -> None:
        if progress is not None:
            progress(IndexProgress(1, 0, 0, 0, num_rows))

    table = read_listing(source, stores) if is_listing(source.url) else list_folder(source, stores, on_rows)
    on_rows(table.num_rows)
    return replace(table, url=location.save(stores, source, lambda place: file_table.encode(place, table)))
