"""Chunks that are asked for while the loader closes."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import stoker
from stoker.engine.chunk_source import DatasetChunks
from stoker.engine.feed import ChunkUse
from stoker.engine.readers import Readers
from stoker.engine.retries import RetryTally
from stoker.formats.open import open_dataset
from stoker.storage.concurrency import Concurrency
from support.shards import make_shards


def test_a_chunk_asked_for_after_close_is_not_read_and_starts_no_thread(tmp_path: Path) -> None:
    make_shards(tmp_path, [3], images=False)
    read: list[ChunkUse] = []
    dataset = open_dataset(stoker.tar(tmp_path / "*.tar"))
    crashes: list[BaseException] = []
    readers = Readers(
        DatasetChunks(dataset),
        lambda _: 1,
        lambda use, *_: read.append(use),
        crashes.append,
        Concurrency(),
        RetryTally(),
    )
    readers.close(time.monotonic() + 5)
    before = set(threading.enumerate())  # other tests of this process may have left some
    readers.submit([ChunkUse(0, 0, 0)])
    assert set(threading.enumerate()) <= before
    assert readers.in_flight() == []
    assert (read, crashes) == ([], [])
