"""Opens the data of a pipeline."""

from __future__ import annotations

from contextvars import copy_context
from dataclasses import replace

from stoker.engine.retries import RetryTally
from stoker.formats.dataset import Dataset
from stoker.formats.index import OnProgress
from stoker.formats.open import open_dataset
from stoker.pipeline import Pipeline
from stoker.storage.daemon_pool import DaemonPool


def open_data(pipeline: Pipeline, tally: RetryTally, progress: OnProgress | None = None) -> Dataset:
    """Open a pipeline's source, its retries counted by ``tally``, which is closed if that fails.

    In a thread, so that a store that stalls does not keep Ctrl-C from the main thread. ``progress`` is called from
    threads that scan, if there is no index yet. Raises StorageError, ShardError.
    """
    source = pipeline.source
    if pipeline.shuffle == "full":
        source = replace(source, chunk_bytes=1)

    def open_() -> Dataset:
        return open_dataset(source, progress=progress, opener=tally.open)

    try:
        with DaemonPool(1, "stoker-open") as pool:
            return pool.submit(copy_context().run, open_).result()
    except BaseException:
        tally.close()
        raise
