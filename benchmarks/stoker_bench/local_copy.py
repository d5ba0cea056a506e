"""Copies the shards of an object store to this machine, for the warm rate: bytes that need not be fetched."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from stoker.formats.source import Files, Parquet, Source, Tar

MAX_BYTES = 4 << 30
READS_IN_FLIGHT = 8


def copy(source: Source, folder: Path, max_bytes: int = MAX_BYTES) -> Tar | Parquet | None:
    """Copy shards below ``folder`` and return them as a source; None if no shards, or more than ``max_bytes``."""
    from stoker.formats.stores import Stores
    from stoker.storage.patterns import expand

    if isinstance(source, Files):
        return None
    extension = "tar" if isinstance(source, Tar) else "parquet"
    options: Mapping[str, str] = source.storage_options or {}
    stores = Stores(options)
    entries = stores.heads(expand(source.patterns, options))
    if sum(entry.size_bytes for entry in entries) > max_bytes:
        return None

    def fetch(number: int) -> None:
        content = stores.read(entries[number].url, 0, entries[number].size_bytes)
        (folder / f"{number:06d}.{extension}").write_bytes(content)

    with ThreadPoolExecutor(READS_IN_FLIGHT) as pool:
        list(pool.map(fetch, range(len(entries))))
    return replace(source, patterns=(str(folder / f"*.{extension}"),), storage_options=None, manifest=None)
