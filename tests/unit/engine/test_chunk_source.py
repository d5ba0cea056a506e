"""Chunks through the readers' seam: neighbours in one request, and the times of their uses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

import stoker
from stoker.engine.chunk_source import DatasetChunks
from stoker.engine.feed import ChunkUse
from stoker.errors import StorageError
from stoker.formats.open import open_dataset
from stoker.formats.stores import Access
from stoker.formats.tar_dataset import TarDataset
from stoker.sample import RawSample
from support.counting import Opener
from support.shards import make_shards


def opened(folder: Path, opener: Opener) -> TarDataset:
    make_shards(folder, [40, 40], images=False)
    source = stoker.tar(folder / "*.tar", chunk_bytes=8 << 10)
    open_dataset(source)  # makes the index
    return cast(TarDataset, open_dataset(source, access=Access(opener)))


def uses(*chunks: int) -> list[ChunkUse]:
    return [ChunkUse(0, 0, chunk) for chunk in chunks]


def keys(content: object) -> list[str]:
    assert isinstance(content, list)
    return [sample.origin.key for sample in content if isinstance(sample, RawSample)]


def test_neighbours_of_one_shard_run_on(tmp_path: Path) -> None:
    dataset = opened(tmp_path, Opener())
    chunks = DatasetChunks(dataset)
    last = len(dataset.chunks.num_rows) - 1
    border = next(chunk for chunk in range(last) if dataset.ranges(chunk)[0].url != dataset.ranges(chunk + 1)[0].url)
    assert border >= 2
    assert chunks.runs_on(uses(0, 1), ChunkUse(0, 0, 2))
    assert not chunks.runs_on(uses(0), ChunkUse(0, 0, 2))
    assert not chunks.runs_on(uses(1), ChunkUse(0, 0, 0))
    assert not chunks.runs_on(uses(border), ChunkUse(0, 0, border + 1))


def test_neighbours_are_one_request_and_the_same_samples(tmp_path: Path) -> None:
    opener = Opener()
    dataset = opened(tmp_path, opener)
    alone = [dataset.read_chunk(chunk) for chunk in (0, 1, 2)]
    opener.store.reads.clear()
    together = DatasetChunks(dataset).read(uses(0, 1, 2))
    assert [keys(content) for content in together] == [keys(content) for content in alone]
    ((_, start, stop),) = opener.store.reads
    assert (start, stop) == (dataset.ranges(0)[0].start, dataset.ranges(2)[0].stop)


def test_an_error_stays_with_its_chunk(tmp_path: Path) -> None:
    dataset = opened(tmp_path, Opener())
    gone = Path(dataset.ranges(0)[0].url.removeprefix("file://"))
    last = len(dataset.chunks.num_rows) - 1
    gone.unlink()
    chunks = DatasetChunks(dataset)
    assert [isinstance(content, StorageError) for content in chunks.read(uses(0, 1))] == [True, True]
    assert keys(chunks.read(uses(last))[0])


@pytest.mark.parametrize("field", ["epoch", "window"])
def test_uses_of_other_epochs_and_windows_are_told_apart(field: str, tmp_path: Path) -> None:
    dataset = opened(tmp_path, Opener())
    first = ChunkUse(0, 0, 0)
    other = replace(first, **{field: 1})
    assert [keys(content) for content in DatasetChunks(dataset).read([first])] == [
        keys(content) for content in DatasetChunks(dataset).read([other])
    ]
