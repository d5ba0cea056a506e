"""Where the manifest of a source is kept."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from stoker.errors import StorageError
from stoker.formats.source import Files, Source, Tar, folder_of, is_listing
from stoker.formats.stores import Stores
from stoker.storage.urls import WEB_SCHEMES, normalize, scheme_of

_LOG = logging.getLogger("stoker")
_MAGIC = "*?[{"


def places(source: Source) -> list[str]:
    """Where to look for the manifest, and in which order to try to write it.

    The one the user named; else beside the data under a name that stays when the folder is moved, then the user's
    cache folder under a name made from the whole source.
    """
    if source.manifest is not None:
        return [normalize(source.manifest)]
    rule = _rule(source)
    if isinstance(source, Files):
        patterns = [normalize(source.url) if is_listing(source.url) else folder_of(source)]
        folder = common_folder([folder_of(source)])
    else:
        patterns = [normalize(pattern) for pattern in source.patterns]
        folder = common_folder([static_folder(pattern) for pattern in patterns])
    beside = []
    if folder and scheme_of(folder) not in WEB_SCHEMES:
        relative = [pattern.removeprefix(folder) for pattern in patterns]
        beside = [f"{folder}.stoker-index-{_hash([*rule, relative])}.parquet"]
    return [*beside, normalize(_cache_folder() / f"index-{_hash([*rule, patterns])}.parquet")]


def save(stores: Stores, source: Source, encode: Callable[[str], bytes]) -> str:
    """Write the manifest to the first place that takes it; returns that URL, or "" if none did.

    ``encode`` makes the file for a URL. A place that the user named must take it: StorageError if it does not.
    """
    for place in places(source):
        try:
            stores.of(place).write(place, encode(place))
        except StorageError as error:
            if source.manifest is not None:
                raise
            _LOG.info("the index cannot be kept at %s: %s", place, error)
        else:
            return place
    _LOG.warning("the index of %r could be kept nowhere, it is made again at each start; pass manifest=", source)
    return ""


def static_folder(pattern: str) -> str:
    """The folder, with a slash at its end, that a pattern names before its first brace or glob."""
    first = min((at for at in (pattern.find(sign) for sign in _MAGIC) if at >= 0), default=len(pattern))
    return pattern[: pattern.rfind("/", 0, first) + 1]


def common_folder(folders: Sequence[str]) -> str:
    """The deepest folder, with a slash at its end, that holds all; "" if that is less than a bucket or is ``/``."""
    split = [folder.split("/")[:-1] for folder in folders]
    low, high = min(split), max(split)
    parts = low[: next((i for i, part in enumerate(low) if part != high[i]), len(low))]
    return "/".join(parts) + "/" if len(parts) > 3 or (len(parts) == 3 and parts[2]) else ""


def _rule(source: Source) -> list[Any]:
    if isinstance(source, Files):
        return ["files", source.extensions, source.labels, source.classes]
    return ["tar", source.keys] if isinstance(source, Tar) else ["parquet"]


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "stoker"


def _hash(parts: list[Any]) -> str:
    return blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()
