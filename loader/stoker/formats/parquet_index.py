"""The index of Parquet shards: the footers of those that changed are read, the rest is taken over."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from stoker.formats.index import Meter, OnProgress, Plan, num_threads
from stoker.formats.parquet_footer import Footer, Layout, read_footer
from stoker.formats.parquet_manifest import ParquetManifest, ParquetShard, make_shard
from stoker.formats.stores import Stores
from stoker.storage.daemon_pool import DaemonPool
from stoker.storage.store import ObjectInfo


def read_changed(
    stores: Stores, planned: Plan, known: ParquetManifest | None, on_progress: OnProgress | None
) -> tuple[tuple[Layout, ...], tuple[ParquetShard, ...]]:
    """The shards of a plan with their layouts: footers are read in parallel, or shards are those of ``known``.

    Raises ShardError for one that is no Parquet file, StorageError if one cannot be read.
    """
    numbers: dict[Layout, int] = {}
    meter = Meter(planned, on_progress)
    shards: list[ParquetShard] = []
    with ExitStack() as stack:
        pool = stack.enter_context(DaemonPool(num_threads(planned.to_scan), "stoker-index"))
        footers = [pool.submit(_read, stores, entry, meter) for entry in planned.to_scan]
        stack.callback(meter.stop)
        results = iter(footers)
        for entry, old in zip(planned.entries, planned.old, strict=True):
            if old is not None and known is not None:
                shard = known.shards[old]
                number = numbers.setdefault(known.layouts[shard.layout], len(numbers))
                shards.append(replace(shard, url=entry.url, layout=number))
                continue
            footer = next(results).result()
            number = numbers.setdefault(footer.layout, len(numbers))
            shards.append(make_shard(entry.url, entry.size_bytes, entry.version, number, footer))
    return tuple(numbers), tuple(shards)


def with_urls(found: ParquetManifest, urls: Sequence[str]) -> ParquetManifest:
    """The same manifest for URLs that may carry new signatures."""
    shards = (replace(shard, url=url) for shard, url in zip(found.shards, urls, strict=True))
    return replace(found, shards=tuple(shards))


def _read(stores: Stores, entry: ObjectInfo, meter: Meter) -> Footer:
    def read(start: int, stop: int) -> memoryview:
        return stores.read(entry.url, start, stop, entry.version)

    footer = read_footer(entry.url, entry.size_bytes, read)
    meter.report(1, entry.size_bytes, int(footer.num_rows.sum()))
    return footer
