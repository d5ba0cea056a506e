"""Keys and field names that every reader of tar shards splits where they were joined; pure.

A member's name is key, dot, field; WebDataset's rule cuts at the first dot of the base name. What would be cut
elsewhere, hidden, or unpacked into another folder is written as ``%XX``.
"""

from __future__ import annotations

import re

from stoker.errors import SampleError

_UNSAFE = re.compile(r"[%\x00-\x1f\x7f]")
_UNSAFE_BASE = re.compile(r"[%.\x00-\x1f\x7f]")


def safe_key(key: str) -> str:
    """The key with folders as they are and no dot in its base name; different keys stay different."""
    folder, slash, base = key.rpartition("/")
    parts = [_safe_folder(part) for part in folder.split("/")] if slash else []
    name = "/".join([*parts, _UNSAFE_BASE.sub(_code, base) or "%"])
    return "%5F" + name[1:] if name.startswith("__") else name


def safe_field(name: str) -> str:
    """A field's name in lower case, with dots for slashes. Raises SampleError for one of which nothing is left."""
    field = _UNSAFE.sub(_code, name.replace("/", ".")).strip(".").lower()
    if not field:
        raise SampleError(f"a column is named {name!r}, of which no field can be made; leave it out")
    return field


def unused(key: str, used: set[str]) -> str:
    """The key, with a number if it is taken: neighbours with one key would be one sample. It is taken from now on."""
    found, number = key, 2
    while found in used:
        found, number = f"{key}~{number}", number + 1
    used.add(found)
    return found


def _safe_folder(part: str) -> str:
    return {"": "%", ".": "%2E", "..": "%2E%2E"}.get(part) or _UNSAFE.sub(_code, part)


def _code(match: re.Match[str]) -> str:
    return f"%{ord(match[0]):02X}"
