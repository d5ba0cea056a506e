"""What tells whether a kept listing is still true, without listing again.

A local folder: the modification times of all folders in it, which change when a file is added, removed or renamed; of
the top folder, where the listing itself may be kept, the names in it. A listing file: its size and version. A
prefix in a bucket: nothing; `stoker index` lists it again.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

from stoker.formats.file_table import FileTable, Stamp
from stoker.formats.source import Files, folder_of, is_listing
from stoker.formats.stores import Stores, is_local
from stoker.storage.urls import local_path, normalize


def of_source(source: Files, stores: Stores) -> Stamp:
    """The stamp of what a source lists now; to be taken before it is listed."""
    stamp = _rules(source)
    if is_listing(source.url):
        entry = stores.of(normalize(source.url)).head(normalize(source.url))
        return {**stamp, "size_bytes": entry.size_bytes, "version": entry.version}
    folder = folder_of(source)
    if not is_local(folder):
        return stamp
    try:
        return {**stamp, **_walked(local_path(folder))}
    except OSError:  # no such folder, or one that may not be read: whoever lists it says so
        return stamp


def is_current(source: Files, stores: Stores, found: FileTable) -> bool:
    """Whether a listing that was kept is what would be listed now; of a bucket, whether it was made by these rules."""
    if is_listing(source.url):
        return found.stamp == of_source(source, stores)
    folder = folder_of(source)
    if found.folder != folder or any(found.stamp.get(name) != rule for name, rule in _rules(source).items()):
        return False
    return not is_local(folder) or _is_unchanged(Path(local_path(folder)), found.stamp)


def _rules(source: Files) -> Stamp:
    classes = None if source.classes is None else list(source.classes)
    return {"extensions": list(source.extensions), "labels": source.labels, "classes": classes}


def _walked(top: str) -> Stamp:
    times: dict[str, int] = {}
    seen: set[str] = set()
    for path, below, _ in os.walk(top, followlinks=True):
        real = os.path.realpath(path)
        if real in seen:
            below.clear()
            continue
        seen.add(real)
        if Path(path) != Path(top):
            times[os.path.relpath(path, top)] = Path(path).stat().st_mtime_ns
    return {"names": _names(top), "folders": times}


def _is_unchanged(top: Path, stamp: Stamp) -> bool:
    try:
        is_same = all((top / name).stat().st_mtime_ns == time for name, time in stamp["folders"].items())
        return is_same and _names(str(top)) == stamp["names"]
    except (OSError, KeyError):
        return False


def _names(folder: str) -> str:
    hasher = blake2b(digest_size=16)
    with os.scandir(folder) as entries:
        for name in sorted(entry.name for entry in entries if not entry.name.startswith(".stoker-")):
            hasher.update(f"{name}\n".encode("utf-8", "surrogateescape"))
    return hasher.hexdigest()
