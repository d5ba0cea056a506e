"""Opens the data of a pipeline."""

from __future__ import annotations

from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING

from stoker.engine.retries import RetryTally
from stoker.formats.dataset import Dataset
from stoker.formats.index import OnProgress
from stoker.formats.open import open_dataset
from stoker.formats.source import Parquet
from stoker.formats.stores import Access
from stoker.pipeline import Pipeline
from stoker.storage.daemon_pool import DaemonPool
from stoker.storage.peers import Peers

if TYPE_CHECKING:
    from stoker.storage.cache import ChunkCache


def open_data(
    pipeline: Pipeline,
    tally: RetryTally,
    progress: OnProgress | None = None,
    *,
    cache: ChunkCache | None = None,
    peers: Peers | None = None,
) -> Dataset:
    """Open a pipeline's source, its retries counted by ``tally``, which is closed if that fails.

    In a thread, so that a store that stalls does not keep Ctrl-C from the main thread. ``progress`` is called from
    threads that scan, if there is no index yet. ``cache`` and ``peers`` may have chunks, and are the caller's to close.
    Raises StorageError, ShardError.
    """
    source = pipeline.source
    if pipeline.shuffle == "full" and not isinstance(source, Parquet):  # a Pipeline refuses both together
        source = replace(source, chunk_bytes=1)

    def open_() -> Dataset:
        return open_dataset(source, progress=progress, access=Access(tally.open, cache, peers))

    try:
        with DaemonPool(1, "stoker-open") as pool:
            return pool.submit(copy_context().run, open_).result()
    except BaseException:
        tally.close()
        raise
