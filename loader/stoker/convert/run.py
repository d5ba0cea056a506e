"""A whole conversion: surveyed, planned, made in parallel, and described at its end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from stoker.convert import state
from stoker.convert.detect import is_pattern, open_records
from stoker.convert.make import Job, Made, make_shard
from stoker.convert.options import ConvertOptions
from stoker.convert.plan import Plan, plan
from stoker.convert.records import Records, Survey
from stoker.errors import ClosedError, DataError, SpecError, StokerError
from stoker.formats import location, manifest_file
from stoker.formats.open import build_manifest
from stoker.formats.source import Parquet, Tar
from stoker.formats.stores import Stores
from stoker.storage.daemon_pool import DaemonPool
from stoker.storage.globs import escape
from stoker.storage.urls import WEB_SCHEMES, normalize, scheme_of, shown

_COPIES = {"tar": 2, "parquet": 6}
"""How often a shard is in memory at most while it is made, about; measured."""


@dataclass(frozen=True, slots=True)
class Look:
    """What would be made: ``num_bytes`` are the source's; ``shards`` has the rows of each."""

    kind: str
    num_rows: int
    num_bytes: int
    shard_rows: tuple[int, ...]
    problems: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class ConvertProgress:
    """How far a conversion is."""

    num_shards: int
    shards_done: int
    shards_kept: int
    num_rows: int
    rows_done: int


OnProgress = Callable[[ConvertProgress], None]


@dataclass(frozen=True, slots=True)
class Converted:
    """What lies at the destination. ``pattern`` is what a pipeline opens, ``manifest`` the JSON that lists all."""

    kind: str
    to: str
    pattern: str
    manifest: str
    num_shards: int
    num_rows: int
    num_bytes: int
    shards_kept: int
    skipped: tuple[state.Skipped, ...]
    note: str = ""


def look(source: str | os.PathLike[str], options: ConvertOptions | None = None) -> Look:
    """Survey a source and plan its shards; nothing is written but the index of tars and folders, where they lie."""
    options = options or ConvertOptions()
    records, survey = _surveyed(os.fspath(source), options)
    planned = _planned(survey, options)
    rows = tuple(len(planned.rows(shard)) for shard in range(planned.num_shards))
    problems = tuple(str(problem) for problem in survey.problems)
    return Look(records.kind, planned.num_rows, planned.num_bytes, rows, problems, _note(records, planned, options))


def convert(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    options: ConvertOptions | None = None,
    *,
    on_progress: OnProgress | None = None,
) -> Converted:
    """Write the records of ``source`` as shards below ``destination``; both are paths or URLs.

    The same source and options give the same bytes, whatever the number of workers. A run that was killed is gone on
    with by the same call: finished shards are read and kept if they are whole. ``on_progress`` is called from the
    workers, one at a time.

    Raises SpecError for what cannot be converted, StateError for a destination that holds another run, DataError for
    a bad record unless they are skipped, or if what was read back is not what was written, and StorageError.
    """
    options = options or ConvertOptions()
    folder = normalize(destination).rstrip("/") + "/"
    if scheme_of(folder) in WEB_SCHEMES:
        raise SpecError(f"{shown(folder)}: nothing can be written to a web server; give a folder or a bucket")
    if not is_pattern(os.fspath(source)) and folder.startswith(normalize(source).rstrip("/") + "/"):
        raise SpecError(
            f"{shown(folder)} lies in the source, which would then hold the shards too; give another folder"
        )
    given = options.destination_options if options.destination_options is not None else options.storage_options
    stores = Stores(given)
    records, survey = _surveyed(os.fspath(source), options)
    if survey.problems and options.on_error == "raise":
        raise DataError(f"{survey.problems[0]}. To take the records before it: on_error='skip' (--on-error skip)")
    planned = _planned(survey, options)
    run = {
        "source": shown(os.fspath(source)),
        "kind": records.kind,
        "digest": records.digest,
        "settings": options.settings(),
    }
    state.begin(stores, folder, run)
    job = Job(records, planned, options, stores, folder, state.identity_of(run))
    made = _make_all(job, on_progress)
    problems = [state.skipped_of(problem) for problem in survey.problems]
    pattern = _index(stores, folder, made, options, given)
    url = state.finish(stores, folder, run, [shard.state for shard in made], problems, records.classes)
    return Converted(
        records.kind,
        options.to,
        pattern,
        url,
        sum(bool(shard.state.name) for shard in made),
        sum(shard.state.rows for shard in made),
        sum(shard.state.bytes for shard in made),
        sum(shard.is_kept for shard in made),
        (*problems, *(bad for shard in made for bad in shard.state.skipped)),
        _note(records, planned, options),
    )


def _surveyed(source: str, options: ConvertOptions) -> tuple[Records, Survey]:
    records = open_records(source, options)
    with DaemonPool(_num_workers(options), "stoker-survey") as pool:
        survey = records.survey(pool)
    if not len(survey.sizes):
        lost = f": {survey.problems[0]}" if survey.problems else ""
        raise SpecError(f"{shown(source)} ({records.kind}) holds no record{lost}")
    return records, survey


def _planned(survey: Survey, options: ConvertOptions) -> Plan:
    return plan(survey, options.shard_bytes, options.shard_rows, options.shuffle_seed)


def _note(records: Records, planned: Plan, options: ConvertOptions) -> str:
    if options.shuffle_seed is None or not records.costs_whole_parts or planned.num_shards < 2:
        return ""
    return (
        f"each of the {planned.num_shards} shards reads nearly all of the source, which can only be read in whole "
        "parts; it is faster to convert without a shuffle first and to shuffle the tar shards that come out"
    )


def _make_all(job: Job, on_progress: OnProgress | None) -> list[Made]:
    """Make every shard. Raises the first error; the other workers stop with their next records."""
    meter = _Meter(job.plan, on_progress)
    with DaemonPool(min(_num_workers(job.options), job.plan.num_shards), "stoker-convert") as pool:
        futures = [pool.submit(_make_one, job, number, meter) for number in range(job.plan.num_shards)]
        try:
            return [future.result() for future in futures]
        except ClosedError:
            if meter.failure is None:
                raise
            raise meter.failure from None
        finally:
            meter.is_stopped = True


def _make_one(job: Job, number: int, meter: _Meter) -> Made:
    try:
        made = make_shard(job, number, meter.on_rows)
    except StokerError as error:
        if not meter.is_stopped:
            meter.failure = error
        meter.is_stopped = True
        raise
    meter.on_shard(made)
    return made


def _index(
    stores: Stores, folder: str, made: Sequence[Made], options: ConvertOptions, given: dict[str, str] | None
) -> str:
    """Keep what `stoker index` would make, under each pattern that one would open; returns the plainest."""
    names = [shard.state.name for shard in made if shard.state.name]
    escaped = escape(folder)
    patterns = [f"{escaped}*.{options.to}"]
    if len(names) == len(made):
        patterns.insert(0, f"{escaped}shard-{{000000..{len(made) - 1:06d}}}.{options.to}")
    indexed = [shard.index for shard in made if shard.index is not None]
    if options.to == "parquet":
        for pattern in patterns:
            build_manifest(Parquet((pattern,), storage_options=given))  # footers alone tell all, they are read again
    else:
        shards, batches = [shard for shard, _ in indexed], [batch for _, batch in indexed]
        for pattern in patterns:
            source = Tar((pattern,), storage_options=given)
            location.save(stores, source, lambda place: manifest_file.encode(place, "first-dot", shards, batches))
    return patterns[0]


def _num_workers(options: ConvertOptions) -> int:
    """As many as cores, if half of the memory holds their shards."""
    if options.workers is not None:
        return options.workers
    room_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return max(1, min(len(os.sched_getaffinity(0)), room_bytes // (_COPIES[options.to] * options.shard_bytes)))


class _Meter:
    """Adds up what the workers report, and stops them all when one has failed."""

    def __init__(self, planned: Plan, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._now = ConvertProgress(planned.num_shards, 0, 0, planned.num_rows, 0)
        self.is_stopped = False
        self.failure: StokerError | None = None

    def on_rows(self, num_rows: int) -> None:
        """Count records; raises ClosedError if another worker has failed."""
        if self.is_stopped:
            raise ClosedError("the conversion was stopped by the error of another worker")
        with self._lock:
            self._tell(replace(self._now, rows_done=self._now.rows_done + num_rows))

    def on_shard(self, made: Made) -> None:
        with self._lock:
            now = self._now
            kept = now.shards_kept + made.is_kept
            self._tell(replace(now, shards_done=now.shards_done + 1, shards_kept=kept))

    def _tell(self, now: ConvertProgress) -> None:
        self._now = now
        if self._on_progress is not None:
            self._on_progress(now)
