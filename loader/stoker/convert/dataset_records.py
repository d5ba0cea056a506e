"""Records of what a pipeline can open itself: tar shards and folders of files."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor

import numpy as np

from stoker.convert.options import ConvertOptions
from stoker.convert.records import Survey
from stoker.errors import SampleError, SampleOrigin, StokerWarning
from stoker.formats.dataset import Dataset
from stoker.formats.files import FilesDataset
from stoker.formats.manifest import Shard
from stoker.formats.open import Built, build_manifest, open_dataset
from stoker.formats.source import DEFAULT_CHUNK_BYTES, IMAGE_EXTENSIONS, Files, Tar
from stoker.sample import RawSample
from stoker.storage.urls import shown

_ONE_ROW = 1
_LOSSES = ("is cut", "is broken", "is empty", "has data after", "its gzip stream")
"""How the notices of ``formats/scan.py`` begin that mean that samples are missing."""


class DatasetRecords:
    """The chunks of an opened data set as parts."""

    costs_whole_parts = False

    def __init__(self, kind: str, dataset: Dataset, problems: tuple[SampleError, ...] = ()) -> None:
        self.kind = kind
        self.digest = dataset.fingerprint
        names = dataset.classes if isinstance(dataset, FilesDataset) else ()
        self.classes: Mapping[str, Sequence[str]] = {"cls": names} if names else {}
        self._dataset = dataset
        self._problems = problems

    def survey(self, pool: Executor) -> Survey:  # noqa: ARG002  # the manifest says all
        chunks = self._dataset.chunks
        rows = chunks.num_rows.astype(np.int64)
        mean = -(-chunks.size_bytes // np.maximum(rows, 1))
        return Survey(rows, np.repeat(mean, rows), self._problems)

    def read(self, part: int, rows: Sequence[int]) -> Iterator[RawSample | SampleError]:
        found = self._dataset.read_chunk(part)
        for row in rows:
            yield found[row]


def open_tars(patterns: Sequence[str], options: ConvertOptions) -> DatasetRecords:
    """Tar shards, to be cut anew, mixed, or written as Parquet."""
    source = Tar(tuple(patterns), chunk_bytes=_chunk_bytes(options), storage_options=options.storage_options)
    lost = _lost(build_manifest(source))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StokerWarning)  # what counts is among the problems
        return DatasetRecords("tar", open_dataset(source), lost)


def _lost(built: Built) -> tuple[SampleError, ...]:
    """What the scan says of shards that do not give all their samples."""
    return tuple(
        SampleError(f"the shard {notice}", origin=SampleOrigin(shown(shard.url), shard.num_rows, ""))
        for shard in built.manifest.shards
        if isinstance(shard, Shard)
        for notice in shard.notices
        if notice.startswith(_LOSSES)
    )


def open_files(url: str, options: ConvertOptions) -> DatasetRecords:
    """A folder of files, class folders perhaps, or a listing file."""
    source = Files(
        url,
        extensions=options.extensions or IMAGE_EXTENSIONS,
        labels=options.labels,
        chunk_bytes=_chunk_bytes(options),
        storage_options=options.storage_options,
    )
    return DatasetRecords("files", open_dataset(source))


def _chunk_bytes(options: ConvertOptions) -> int:
    """Mixed records are read one by one, neighbours together."""
    return DEFAULT_CHUNK_BYTES if options.shuffle_seed is None else _ONE_ROW
