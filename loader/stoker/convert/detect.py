"""What lies at a source, told by looking."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from typing import Any

from stoker.convert import dataset_records
from stoker.convert.hugging_face import HuggingFaceRecords
from stoker.convert.mds import MdsRecords
from stoker.convert.options import ConvertOptions, Kind
from stoker.convert.records import Records
from stoker.convert.source_files import list_folder, read
from stoker.convert.tfrecord import HEAD_BYTES, TfRecords, is_frame
from stoker.errors import NotFoundError, ShardError, SpecError
from stoker.formats.location import common_folder
from stoker.formats.source import IMAGE_EXTENSIONS, is_listing
from stoker.formats.stores import Stores
from stoker.storage.globs import escape, has_glob
from stoker.storage.patterns import expand
from stoker.storage.store import ObjectInfo
from stoker.storage.urls import normalize, shown

_NUMBERED = re.compile(r"(.*?)[-_.]\d+-of-\d+")
_SPLIT = re.compile(r"(train|training|test|testing|validation|valid|val|dev|eval)(?![a-z])")
_NAMES: dict[Kind, re.Pattern[str]] = {
    "tar": re.compile(r"\.(tar|tgz|tar\.gz)$"),
    "hugging-face": re.compile(r"\.(parquet|arrow)$"),
    "tfrecord": re.compile(r"\.tfrec(ords?)?([-_.]?\d+-of-\d+)?(\.gz)?$"),
    "files": re.compile(rf"\.({'|'.join(IMAGE_EXTENSIONS)})$"),
    "mds": re.compile(r"\.mds(\.|$)"),
}
_IN_FILES: tuple[Kind, ...] = ("tar", "hugging-face", "tfrecord")
_BY_FOLDER: tuple[Kind, ...] = ("files", "mds")
"""The kinds whose modules list their folder themselves."""

_LOOKED_AT = 10_000
"""So many files tell what a folder holds."""

_FROM = "name it with --from (files, hugging-face, mds, tar, tfrecord)"


def open_records(source: str, options: ConvertOptions) -> Records:
    """Open the source as what it is, or as ``options.kind``. Raises SpecError that lists what was found."""
    if is_listing(source) and options.kind in (None, "files"):
        return dataset_records.open_files(source, options)
    stores = Stores(options.storage_options)
    if is_pattern(source):
        return _open_pattern(stores, source, options)
    folder = normalize(source).rstrip("/") + "/"
    kind, entries = options.kind, list[ObjectInfo]()
    if kind not in _BY_FOLDER:
        kind, entries = _looked_at(stores, source, folder, kind)
    match kind:
        case "mds":
            return MdsRecords(stores, folder, options.columns)
        case "files":
            return dataset_records.open_files(folder, options)
    return _open_entries(stores, source, folder, entries, kind, options)


def _looked_at(stores: Stores, source: str, folder: str, kind: Kind | None) -> tuple[Kind, list[ObjectInfo]]:
    """The kind of a folder, with all files of it unless that kind lists them itself."""
    listed = list_folder(stores, folder)
    first = list(itertools.islice(listed, _LOOKED_AT))
    if not first:
        raise NotFoundError(f"nothing lies below {shown(folder)}; check the path")
    kind = kind or _only_kind(source, first, _kinds(stores, first))
    return kind, [] if kind in _BY_FOLDER else _of_kind(stores, [*first, *listed], kind)


def is_pattern(source: str) -> bool:
    """Whether a source names files, not a folder."""
    name = source.rstrip("/").rpartition("/")[2].lower()
    is_file = any(_NAMES[kind].search(name) for kind in _IN_FILES)
    return has_glob(source) or "{" in source or is_file


def _open_pattern(stores: Stores, source: str, options: ConvertOptions) -> Records:
    urls = expand([source], options.storage_options or {})
    entries = stores.heads(urls)
    kind = options.kind or _only_kind(source, entries, _kinds(stores, entries))
    if kind in _BY_FOLDER:
        raise SpecError(f"{shown(source)} is a pattern; of {kind} data give the folder, or a listing of files as .csv")
    folder = common_folder([url.rpartition("/")[0] + "/" for url in urls])
    return _open_entries(stores, source, folder, _of_kind(stores, entries, kind), kind, options)


def _open_entries(
    stores: Stores, source: str, folder: str, entries: Sequence[ObjectInfo], kind: Kind, options: ConvertOptions
) -> Records:
    """Open files that hold many records each."""
    if kind == "tar":
        patterns = [source] if is_pattern(source) else _tar_patterns(folder, entries)
        return dataset_records.open_tars(patterns, options)
    if not is_pattern(source):
        entries = _one_split(stores, folder, entries)
    if kind == "tfrecord":
        return TfRecords(stores, folder, entries, options.columns)
    return HuggingFaceRecords(stores, folder, entries, options.columns)


def _kinds(stores: Stores, entries: Sequence[ObjectInfo]) -> list[Kind | None]:
    """The kinds by the names' extensions; of names that say nothing but look numbered, one of a row is looked into."""
    looked: dict[str, Kind | None] = {}
    found: list[Kind | None] = []
    for entry in entries:
        name = entry.url.rpartition("/")[2].lower()
        kind = next((kind for kind, pattern in _NAMES.items() if pattern.search(name)), None)
        numbered = _NUMBERED.fullmatch(name)
        if kind is None and numbered is not None and entry.size_bytes >= HEAD_BYTES:
            if numbered[1] not in looked:
                looked[numbered[1]] = "tfrecord" if is_frame(bytes(read(stores, entry, 0, HEAD_BYTES))) else None
            kind = looked[numbered[1]]
        found.append(kind)
    return found


def _of_kind(stores: Stores, entries: Sequence[ObjectInfo], kind: Kind) -> list[ObjectInfo]:
    """The files of this kind; all if none looks like it, as the user has said that they are."""
    kinds = _kinds(stores, entries)
    return [entry for entry, found in zip(entries, kinds, strict=True) if found == kind] or list(entries)


def _tar_patterns(folder: str, entries: Sequence[ObjectInfo]) -> list[str]:
    """One pattern where that says the same, since `stoker index` was most likely given it; else the URLs."""
    if all(entry.url.endswith(".tar") and "/" not in entry.url.removeprefix(folder) for entry in entries):
        return [f"{escape(folder)}*.tar"]
    return [escape(entry.url) for entry in entries]


def _only_kind(source: str, entries: Sequence[ObjectInfo], kinds: Sequence[Kind | None]) -> Kind:
    if "mds" in kinds and any(entry.url.endswith("/index.json") for entry in entries):
        return "mds"
    counts = {kind: kinds.count(kind) for kind in sorted({kind for kind in kinds if kind is not None})}
    if len(counts) == 1:
        return next(iter(counts))
    if not counts:
        raise SpecError(
            f"{shown(source)} holds {len(kinds)} files, none of them known: expected tar shards, Arrow or Parquet "
            f"files, MDS shards with index.json, TFRecord files or pictures. If it is one of these, {_FROM}; for a "
            "folder of other files: --from files --extensions"
        )
    listed = ", ".join(f"{count} of {kind}" for kind, count in counts.items())
    raise SpecError(
        f"{shown(source)} holds several kinds of data: {listed}; {_FROM}, or a pattern such as '…/*.parquet'"
    )


def _one_split(stores: Stores, folder: str, entries: Sequence[ObjectInfo]) -> list[ObjectInfo]:
    """The data files of one data set: those that state.json names, in its order, else all of one split."""
    state_url = f"{folder}state.json"
    arrows = {entry.url.removeprefix(folder): entry for entry in entries}
    try:
        state: Any = json.loads(bytes(stores.read(state_url, 0, stores.of(state_url).head(state_url).size_bytes)))
        names = [file["filename"] for file in state["_data_files"]]
    except NotFoundError:
        _check_one_split(folder, entries)
        return list(entries)
    except (ValueError, KeyError, TypeError) as error:
        raise ShardError(f"{shown(state_url)} is not what datasets.save_to_disk writes: {error}") from error
    if state.get("_indices_data_files"):
        raise SpecError(
            f"{shown(folder)} has an indices mapping; flatten it first: ds.flatten_indices().save_to_disk()"
        )
    if missing := [name for name in names if name not in arrows]:
        raise NotFoundError(f"{shown(folder)} lacks {missing[0]!r}, which its state.json names")
    return [arrows[name] for name in names]


def _check_one_split(folder: str, entries: Sequence[ObjectInfo]) -> None:
    """Refuse to mix splits: names such as ``train-00000-of-00005`` tell them, else folders do."""
    splits = {_split_of(entry.url.removeprefix(folder)) for entry in entries}
    if len(splits) > 1:
        shortly = ", ".join(sorted(splits)[:8])
        raise SpecError(
            f"{shown(folder)} holds several splits: {shortly}; convert each by itself, with a pattern such as "
            f"'{shown(folder)}{max(splits)}*'"
        )


def _split_of(path: str) -> str:
    parent, slash, name = path.rpartition("/")
    found = _NUMBERED.match(name) or _SPLIT.match(name)
    return parent + slash + (found[1] if found is not None else "")
