"""Decides whether an answer is of the version of an object that was asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from stoker.errors import ChangedError

_TIME = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}\b.*")


def version_of(meta: Mapping[str, Any]) -> str:
    """The version that obstore's metadata of an object show: its ETag without quotes, else a number or a time."""
    return _tag(meta) or meta["version"] or _time(meta)


def strong_tag(meta: Mapping[str, Any]) -> str:
    """The ETag if equal ETags mean equal bytes, else an empty string."""
    tag = _tag(meta)
    return "" if tag.startswith("W/") else tag


def contradicts(meta: Mapping[str, Any], version: str) -> bool:
    """Whether the metadata of an answer say that it is of another version; not if they cannot tell.

    Tags are compared with tags and times with times: a proxy may leave out one of them. A weak tag (``W/``) is as good
    as a strong one here, since compression on the way is all that makes a server weaken it.
    """
    if not version:
        return False
    found = [_time(meta)] if _TIME.fullmatch(version) else [_tag(meta), meta["version"]]
    known = [_bare(tag) for tag in found if tag]
    return bool(known) and _bare(version) not in known


def changed(url: str, *, expected: str, found: str) -> ChangedError:
    """The error for an object that is of another version; ``url`` must be fit to be shown."""
    return ChangedError(
        f"{url} was replaced: version {expected} was expected, {found or 'another'} is there now. "
        "Index it again, or put the old object back"
    )


def _tag(meta: Mapping[str, Any]) -> str:
    return (meta["e_tag"] or "").strip('"')


def _time(meta: Mapping[str, Any]) -> str:
    return str(meta["last_modified"] or "")


def _bare(tag: str) -> str:
    return tag.removeprefix("W/").strip('"')
