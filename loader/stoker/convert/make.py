"""One shard made, written, read back and compared; or kept, if it was made before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from stoker.convert import state
from stoker.convert.fields import Content, to_bytes
from stoker.convert.layouts import Builder, ParquetBuilder, Print, TarBuilder, compare, print_of, read_parquet, read_tar
from stoker.convert.names import safe_field, safe_key, unused
from stoker.convert.options import ConvertOptions
from stoker.convert.pictures import transform
from stoker.convert.plan import Plan, Read
from stoker.convert.records import Records
from stoker.convert.state import ShardState, Skipped
from stoker.errors import DataError, NotFoundError, SampleError, SampleOrigin, StorageError
from stoker.formats.keys import SPLITS
from stoker.formats.manifest import Shard
from stoker.formats.scan import Scan
from stoker.formats.stores import Stores
from stoker.formats.window import Window
from stoker.sample import RawSample
from stoker.storage.store import ObjectInfo
from stoker.storage.urls import shown

OnRows = Callable[[int], None]
_REPORT_ROWS = 64

_RawOrBad = RawSample | SampleError


@dataclass(frozen=True, slots=True)
class Job:
    """What all shards of a run share."""

    records: Records
    plan: Plan
    options: ConvertOptions
    stores: Stores
    folder: str
    run_id: str


@dataclass(frozen=True, slots=True)
class Made:
    """A shard that lies there. ``index`` is its part of the manifest of tar shards."""

    state: ShardState
    is_kept: bool
    index: tuple[Shard, pa.RecordBatch] | None


def make_shard(job: Job, number: int, on_rows: OnRows) -> Made:
    """Keep a shard that is there and whole, else make it. Raises StorageError and DataError."""
    known = state.load_shard(job.stores, job.folder, number, job.run_id)
    if known is not None:
        kept = _kept(job, known)
        if kept is not None:
            on_rows(len(job.plan.rows(number)))
            return kept
    payload, prints, skipped = _built(job, number, on_rows)
    if payload is None:
        made = ShardState(job.run_id, "", 0, 0, "", tuple(skipped))
        state.save_shard(job.stores, job.folder, number, made)
        return Made(made, False, None)
    name = f"shard-{number:06d}.{job.options.to}"
    url = job.folder + name
    made = ShardState(job.run_id, name, len(prints), len(payload), state.digest_of(payload), tuple(skipped))
    job.stores.of(url).write(url, payload)
    del payload  # what comes back is as large again
    entry, back = _read(job, made)
    if back is None or state.digest_of(back) != made.digest:
        raise StorageError(f"{shown(url)}: what was read back is not what was written; run again")
    compare(shown(url), prints, read_tar(url, back) if job.options.to == "tar" else read_parquet(url, back))
    index = _index(entry, back) if job.options.to == "tar" else None
    state.save_shard(job.stores, job.folder, number, made)
    return Made(made, False, index)


def _kept(job: Job, known: ShardState) -> Made | None:
    """A finished shard if it is what it was, and nothing was left out that is not to be."""
    if known.skipped and job.options.on_error == "raise":
        return None
    if not known.name:
        return Made(known, True, None)
    try:
        entry, back = _read(job, known)
    except NotFoundError:
        return None
    if back is None or state.digest_of(back) != known.digest:
        return None
    return Made(known, True, _index(entry, back) if job.options.to == "tar" else None)


def _read(job: Job, known: ShardState) -> tuple[ObjectInfo, memoryview | None]:
    """The whole shard; None if it has another size."""
    url = job.folder + known.name
    entry = job.stores.of(url).head(url)
    if entry.size_bytes != known.bytes:
        return entry, None
    return entry, job.stores.read(url, 0, entry.size_bytes)


def _built(job: Job, number: int, on_rows: OnRows) -> tuple[bytes | None, list[Print], list[Skipped]]:
    """The bytes of a shard, None if it has no record; what is to be compared; what was left out."""
    builder: Builder = TarBuilder() if job.options.to == "tar" else ParquetBuilder()
    prints: list[Print] = []
    skipped: list[Skipped] = []
    used: set[str] = set()
    pending = 0
    for source_row, found in in_order(job.records, job.plan, number):
        ready = found if isinstance(found, SampleError) else _prepared(found, source_row, job.options)
        if isinstance(ready, SampleError):
            if isinstance(ready.__cause__, StorageError):
                raise ready.__cause__  # the store has failed; that is nothing about the record
            if job.options.on_error == "raise":
                raise DataError(f"{ready}. To leave bad records out: on_error='skip' (--on-error skip)") from ready
            skipped.append(state.skipped_of(ready))
        else:
            key, fields = unused(ready[0], used), ready[1]
            builder.add(key, fields)
            prints.append(print_of(key, fields))
        pending += 1
        if pending == _REPORT_ROWS:
            on_rows(pending)
            pending = 0
    on_rows(pending)
    return (builder.finish() if prints else None), prints, skipped


def _prepared(
    found: RawSample, source_row: int, options: ConvertOptions
) -> tuple[str, dict[str, Content]] | SampleError:
    """A record under a key and names that can be split again, with pictures as they are to be."""
    key = safe_key(found.origin.key) if found.origin.key else f"{source_row:09d}"
    fields: dict[str, Content] = {}
    try:
        for name, content in found.fields.items():
            field = safe_field(name)
            if field in fields:
                raise SampleError(f"two fields are named {field!r}")
            fields[field] = to_bytes(name, content)
        return key, transform(fields, options)
    except SampleError as bad:
        return bad.at(found.origin)


def in_order(records: Records, plan: Plan, shard: int) -> Iterator[tuple[int, _RawOrBad]]:
    """The records of a shard in its order, with their numbers in the source; those that come early wait."""
    waiting: dict[int, tuple[int, _RawOrBad]] = {}
    following = 0
    for wanted in plan.reads(shard):
        found = _all_of(records, wanted)
        for number, place in zip(wanted.numbers, wanted.places, strict=True):
            waiting[place] = number, next(found)
            while following in waiting:
                yield waiting.pop(following)
                following += 1


def _all_of(records: Records, wanted: Read) -> Iterator[_RawOrBad]:
    """One entry per row, whatever happens: if a part breaks, the rest of its rows are bad."""
    num_done = 0
    try:
        for found in records.read(wanted.part, wanted.rows):
            yield found
            num_done += 1
    except DataError as error:
        for row in wanted.rows[num_done:]:
            origin = error.origin if isinstance(error, SampleError) else None
            yield SampleError(str(error), origin=origin or SampleOrigin("", row, ""))


def _index(entry: ObjectInfo, payload: memoryview) -> tuple[Shard, pa.RecordBatch]:
    """What `stoker index` would find."""
    size = entry.size_bytes
    window = Window(lambda start, stop: payload[start:stop], size)
    scan = Scan(entry.url, window, size, SPLITS["first-dot"])
    scan.run()
    rows = scan.rows
    shard = Shard(entry.url, size, entry.version, len(rows), rows.digest, "tar", size, tuple(scan.notices))
    return shard, rows.batch()
