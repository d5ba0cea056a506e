"""Samples that are kept decoded: read as such where they are, collected where they are not.

What ops.Cache stands for. A row of a raw chunk is run through the ops before the cache, packed, handed to the
:class:`Writer`, unpacked, and run through the others; a row of an entry is unpacked and run through the others. So the
ops behind the cache get the same values at a hit and at a miss.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from stoker.backends.program import Filtered, Program
from stoker.backends.registry import pixels_identity
from stoker.engine.cache_model import Figures, decide
from stoker.engine.chunk_source import ChunkSource
from stoker.engine.feed import ChunkUse
from stoker.engine.prepared_entry import EntryError, entry_bytes
from stoker.engine.prepared_place import BucketPlace, Entry, FolderPlace, Place
from stoker.engine.prepared_profile import Profile
from stoker.engine.prepared_rows import Row, UnstorableError, pack, unpack
from stoker.engine.prepared_spool import Spool
from stoker.engine.prepared_stats import PreparedCounts, PreparedStats
from stoker.engine.prepared_writer import Writer
from stoker.errors import DataError, SampleError, StokerError, StorageError
from stoker.formats.dataset import ChunkContent, Dataset
from stoker.ops.cache import AUTO, Cache
from stoker.ops.op import Op
from stoker.pipeline import Pipeline
from stoker.sample import RawSample, Sample
from stoker.storage.cache.options import CacheOptions
from stoker.storage.urls import local_path, scheme_of

_LOG: Final = logging.getLogger("stoker")
_FORMAT: Final = 1
_MAX_SPOOL_BYTES: Final = 8 << 30
_MAX_ERRORS: Final = 3
"""After so many reads in a row for which a place gave an error, it is asked no more: each may have taken seconds."""

_MIN_ROWS: Final = 2.0
"""Rows of a chunk on average, of fewer an entry would be a file for each sample."""


@dataclass(frozen=True, slots=True)
class PreparedSample(RawSample):
    """A row of an entry; its fields are read when it is its turn."""

    entry: Entry
    row: int


class Prepared:
    """The decoded cache of one pipeline over one data set, in one process. Safe for many threads.

    A cache that cannot be used, as its place does not answer or its disk is full, is said once in the log, and costs no
    more than that samples are decoded again.
    """

    def __init__(
        self, cache: Cache, program: Program, dataset: Dataset, num_threads: int, encoded: CacheOptions | None
    ) -> None:
        self._cache = cache
        self.plain = program
        self.program = _PreparedProgram(self)
        """What makes samples, of raw ones and of those of :meth:`source`."""
        self._dataset = dataset
        self._num_threads = num_threads
        self._encoded = encoded or CacheOptions()
        self._stats = PreparedStats()
        self._code_labels = {op.label for op in program.prefix_ops if op.is_code}
        self._set_name = _set_name(cache, program.prefix_ops, dataset.fingerprint)
        self._form: Literal["profiling", "decoded", "encoded"] = "encoded"
        self._lock = threading.Lock()
        self._profile = Profile(program, dataset.chunks)
        self._num_failed = 0
        self._place: Place | None = None
        self._writer = Writer(self._spool, self._write, self._stats)
        self._open()

    # -- reading ------------------------------------------------------------------------------------------------------

    def source(self, inner: ChunkSource) -> ChunkSource:
        """Chunks as entries where there are some, else as ``inner`` reads them."""
        return _PreparedChunks(self, inner)

    def has(self, use: ChunkUse) -> bool:
        """Whether a chunk's entry is there, as far as is known."""
        return self._form == "decoded" and self._place is not None and self._place.has(self._name(use.chunk_index)[0])

    def content(self, use: ChunkUse) -> ChunkContent | None:
        """A chunk's entry, as samples; None if there is none."""
        if self._form != "decoded" or self._place is None:
            return None
        name, identity = self._name(use.chunk_index)
        num_rows = int(self._dataset.chunks.num_rows[use.chunk_index])
        try:
            entry = self._place.find(name, identity, use.epoch)
            if entry is not None and not len(entry.index.rows) == len(entry.index.keys) == num_rows:
                raise EntryError(f"{name}: expected {num_rows} rows, found {len(entry.index.rows)}")
            self._num_failed = 0
        except (EntryError, OSError) as error:
            self._damaged(use.chunk_index, error)
            self._num_failed += isinstance(error, OSError)
            if self._num_failed >= _MAX_ERRORS:
                self._end(f"decoded cache off: {error}")
            entry = None
        if entry is None:
            self._stats.add(PreparedCounts(misses=1))
            return None
        self._stats.add(PreparedCounts(hits=1, bytes_read=sum(num_bytes for _, num_bytes, _ in entry.index.rows)))
        origins = [self._dataset.origin(use.chunk_index, row) for row in range(num_rows)]
        samples: list[RawSample | SampleError] = []
        for row, (origin, key) in enumerate(zip(origins, entry.index.keys, strict=True)):
            samples.append(PreparedSample(type(origin)(origin.url, origin.row, key), {}, entry, row))
        return samples

    def came(self, use: ChunkUse, content: ChunkContent) -> None:
        """A raw chunk was read: one with a row that could not be read is not kept."""
        if isinstance(content, list) and any(isinstance(each, SampleError) for each in content):
            self._writer.forget(use.chunk_index)

    def is_profiling(self) -> Profile | None:
        """What wants to know how long reads take, if anything does."""
        return self._profile if self._form == "profiling" else None

    # -- decoding -----------------------------------------------------------------------------------------------------

    def begin(self, raw: RawSample, *, index: int, seed: int, epoch: int, uniforms: NDArray[np.float64]) -> Sample:
        """What :meth:`Program.begin` makes of a sample of the data set; it raises the same."""
        if isinstance(raw, PreparedSample):
            found = self._loaded(index, raw)
            if found is not None:
                return self._resumed(found, Sample({}, raw.origin, index, seed, epoch), uniforms)
            raw = self._read_again(index)
        elif self._form != "encoded" and self._writer.wants(self._place_of(index)[0]):
            return self._collected(raw, index, seed, epoch, uniforms)
        return self.plain.begin(raw, index=index, seed=seed, epoch=epoch, uniforms=uniforms)

    def _collected(self, raw: RawSample, index: int, seed: int, epoch: int, uniforms: NDArray[np.float64]) -> Sample:
        if self._form == "profiling" and self._profile.measure(raw, index, seed, epoch, uniforms):
            self._writer.call(self._decide)
        sample = Sample(dict(raw.fields), raw.origin, index, seed, epoch)
        chunk_index, row = self._place_of(index)
        made = self._prefix(chunk_index, sample)
        try:
            packed = pack(made)
        except UnstorableError as error:
            self._end(f"decoded cache off: {error}")
            self.plain.begin_suffix(sample, uniforms)
            return sample
        self._writer.add(chunk_index, row, int(self._dataset.chunks.num_rows[chunk_index]), packed, epoch)
        return self._resumed(unpack(packed), sample, uniforms)

    def _prefix(self, chunk_index: int, sample: Sample) -> Row:
        """What the ops before the cache make of a sample, or their verdict."""
        try:
            self.plain.run_prefix(sample)
        except SampleError as error:
            if error.op in self._code_labels:  # a function may fail for reasons that pass
                self._writer.forget(chunk_index)
                raise
            return Row(sample.origin.key, {}, error=(error.reason, error.op))
        except Filtered as refusal:
            return Row(sample.origin.key, {}, filtered=list(self.plain.prefix_ops).index(refusal.op))
        return Row(sample.origin.key, sample.fields, sample.conversion)

    def _resumed(self, row: Row, sample: Sample, uniforms: NDArray[np.float64]) -> Sample:
        if row.error is not None:
            raise SampleError(row.error[0], op=row.error[1], origin=sample.origin)
        if row.filtered is not None:
            refused_by = self.plain.prefix_ops[row.filtered]
            raise Filtered(refused_by)  # type: ignore[arg-type]  # only filters refuse
        sample.fields, sample.conversion = dict(row.fields), row.conversion
        self.plain.begin_suffix(sample, uniforms)
        return sample

    def _loaded(self, index: int, raw: PreparedSample) -> Row | None:
        try:
            return unpack(raw.entry.row(raw.row))
        except (EntryError, OSError) as error:
            self._damaged(self._place_of(index)[0], error)
            return None

    def _read_again(self, index: int) -> RawSample:
        """The raw sample, where its entry proved damaged while it was used."""
        chunk_index, row = self._place_of(index)
        try:
            found = self._dataset.read_chunk(chunk_index)[row]
        except (StorageError, DataError) as error:
            raise SampleError(str(error), op="read", origin=self._dataset.origin(chunk_index, row)) from error
        if isinstance(found, SampleError):
            raise found
        return found

    def _place_of(self, index: int) -> tuple[int, int]:
        """The chunk of a sample, and the row in it."""
        firsts = self._dataset.chunks.first_sample
        chunk_index = int(np.searchsorted(firsts, index, "right")) - 1
        return chunk_index, index - int(firsts[chunk_index])

    def _damaged(self, chunk_index: int, error: Exception) -> None:
        self._stats.add(PreparedCounts(errors=1))
        _LOG.info("decoded cache: %s; the data are read instead", error)
        if self._place is not None and isinstance(error, EntryError):
            self._place.drop(self._name(chunk_index)[0])
            self._writer.want(chunk_index)

    # -- the rest -----------------------------------------------------------------------------------------------------

    @property
    def counts(self) -> PreparedCounts:
        """What was done so far, and what was decided."""
        return self._stats.counts

    def again(self) -> Prepared:
        """The same cache for a fork, which has none of the threads, and maybe locks that are taken."""
        return Prepared(self._cache, self.plain, self._dataset, self._num_threads, self._encoded)

    def flush(self, timeout_s: float) -> None:
        """Wait until what is complete is written, for a time."""
        self._writer.wait(timeout_s)

    def close(self) -> None:
        """Write no more; entries that are in use can still be read."""
        self._writer.close()
        if self._place is not None:
            self._place.close()

    def _open(self) -> None:
        chunks = self._dataset.chunks
        if chunks.num_samples < _MIN_ROWS * len(chunks.num_rows):
            self._end(
                "decoded cache off: its unit is a chunk, and the chunks of this data set hold about one sample each "
                '(shuffle="full", or large samples); take shuffle=True or a larger chunk_bytes'
            )
            return
        if chunks.num_samples and not all(each.version for each in self._dataset.ranges(0)):
            self._end("decoded cache off: the store tells no versions of its objects, so old pixels could not be told")
            return
        try:
            self._place = self._opened_place()
            has_entries = self._place.has_entries()
        except (OSError, StokerError) as error:
            self._end(f"decoded cache off: {error}")
            return
        if self._cache.place == AUTO and not has_entries:
            self._form = "profiling"
            return
        self._form = "decoded"
        why = "its place was given" if self._cache.place != AUTO else "it has entries of this data set and these ops"
        self._stats.decided(f"decoded cache on: {why}")

    def _opened_place(self) -> Place:
        place, max_bytes = self._cache.place, self._cache.max_bytes
        if place == AUTO:
            return FolderPlace(Path(self._encoded.folder or _cache_folder()), self._set_name, max_bytes)
        if scheme_of(place) == "file":
            return FolderPlace(Path(local_path(place)), self._set_name, max_bytes)
        return BucketPlace(place, self._set_name, max_bytes, self._cache.storage_options or {})

    def _decide(self) -> None:
        """In the writer's thread, once enough was measured."""
        if self._form != "profiling" or self._place is None:
            return
        cost = self._profile.mean()
        if cost is None:
            self._end("decoded cache off: none of the first samples could be made")
            return
        sizes = self._dataset.chunks.size_bytes
        decision = decide(
            Figures(
                num_samples=self._dataset.chunks.num_samples,
                num_threads=self._num_threads,
                encoded_bytes=max(1.0, float(sizes.sum()) / self._dataset.chunks.num_samples),
                decoded_bytes=cost.packed_bytes,
                full_s=cost.full_s,
                suffix_s=cost.suffix_s,
                origin_bytes_s=self._profile.origin_bytes_s(),
                place_bytes_s=self._place.rate(self._profile.probe()),
                budget_bytes=self._place.room(),
                encoded_budget_bytes=self._encoded_budget(),
            )
        )
        if decision.form == "encoded":
            self._end(decision.text, level=logging.INFO)
            return
        self._form = "decoded"
        self._stats.decided(decision.text)
        _LOG.info("%s", decision.text)

    def _encoded_budget(self) -> int:
        """Bytes of samples as they lie that the other cache would hold."""
        folder = self._encoded.folder
        is_local = all(scheme_of(each.url) == "file" for each in self._dataset.ranges(0))
        if folder is None or (is_local and not self._encoded.cache_files):
            return self._encoded.ram_bytes
        return self._encoded.ram_bytes + (self._encoded.disk_bytes or shutil.disk_usage(folder).free // 2)

    def _end(self, text: str, level: int = logging.WARNING) -> None:
        """Decode each time from now on."""
        with self._lock:
            is_first = self._form != "encoded" or not self._stats.counts.decision
            self._form = "encoded"
        if is_first:
            self._stats.decided(text)
            _LOG.log(level, "%s", text)
        self._writer.stop()

    def _spool(self) -> Spool:
        folder = self._place.spool_folder() if self._place is not None else None
        free = shutil.disk_usage(folder or tempfile.gettempdir()).free
        return Spool(folder, min(_MAX_SPOOL_BYTES, free // 8))

    def _write(self, chunk_index: int, rows: list[bytes]) -> bool:
        if self._form == "profiling":
            self._decide()
        if self._form != "decoded" or self._place is None:
            return False
        name, identity = self._name(chunk_index)
        keys = [unpack(row).key for row in rows]
        return self._place.write(name, entry_bytes(identity, keys, rows))

    def _name(self, chunk_index: int) -> tuple[str, bytes]:
        """The name of a chunk's entry, and what it must say that it is made of: these versions of these ranges."""
        first = int(self._dataset.chunks.first_sample[chunk_index])
        ranges = [(each.start, each.stop, each.version) for each in self._dataset.ranges(chunk_index)]
        identity = hashlib.blake2b(json.dumps([self._set_name, first, ranges]).encode(), digest_size=16).digest()
        return f"{first:012d}-{identity.hex()}", identity


class _PreparedProgram(Program):
    """A program whose first ops may have been run before."""

    def __init__(self, prepared: Prepared) -> None:
        plain = prepared.plain
        super().__init__(
            plain.kernels, plain.prefix_length, plain.stops, plain.rows_per_task, plain.gatherer, plain.device_fields
        )
        self.begin = prepared.begin  # type: ignore[method-assign]  # the one thing that differs


class _PreparedChunks:
    """A :class:`ChunkSource` before another."""

    def __init__(self, prepared: Prepared, inner: ChunkSource) -> None:
        self._prepared = prepared
        self._inner = inner

    def runs_on(self, before: Sequence[ChunkUse], use: ChunkUse) -> bool:
        """See :class:`ChunkSource`; entries are read one by one."""
        if not self._inner.runs_on(before, use):
            return False
        return not any(self._prepared.has(each) for each in (*before, use))

    def read(self, uses: Sequence[ChunkUse]) -> list[ChunkContent]:
        """See :class:`ChunkSource`."""
        found = [self._prepared.content(use) for use in uses]
        if all(content is None for content in found):
            return self._read(uses)
        return [self._read([use])[0] if content is None else content for use, content in zip(uses, found, strict=True)]

    def close(self) -> None:
        """See :class:`ChunkSource`; the decoded cache is its owner's to close."""
        self._inner.close()

    def _read(self, uses: Sequence[ChunkUse]) -> list[ChunkContent]:
        profile = self._prepared.is_profiling()
        if profile is None:
            contents = self._inner.read(uses)
        else:
            with profile.reading(uses):
                contents = self._inner.read(uses)
        for use, content in zip(uses, contents, strict=True):
            self._prepared.came(use, content)
        return contents


def open_prepared(
    pipeline: Pipeline, program: Program, dataset: Dataset, num_threads: int, encoded: CacheOptions | None = None
) -> Prepared | None:
    """The decoded cache of a pipeline, whose ops ``program`` is made of; None if there is no Cache among them.

    ``encoded`` is the cache of samples as they lie, if there is one: ``place="auto"`` takes its folder, and compares.
    """
    cache = next((op for op in pipeline.ops if isinstance(op, Cache)), None)
    return None if cache is None else Prepared(cache, program, dataset, num_threads, encoded)


def with_prepared(prepared: Prepared | None, program: Program, source: ChunkSource) -> tuple[Program, ChunkSource]:
    """What a maker is given: the two that go together, or those that came in where there is no cache."""
    return (program, source) if prepared is None else (prepared.program, prepared.source(source))


def _set_name(cache: Cache, prefix: Sequence[Op], fingerprint: str) -> str:
    """What decides the pixels of all entries: the data, the ops with their functions' code, who carries them out."""
    parts = [_FORMAT, fingerprint, [op.identity() for op in prefix], pixels_identity(), cache.version]
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()


def _cache_folder() -> str:
    base = os.environ.get("XDG_CACHE_HOME")
    return str((Path(base) if base else Path.home() / ".cache") / "stoker")
