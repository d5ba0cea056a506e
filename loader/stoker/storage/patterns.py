"""From the patterns a user writes to the URLs they stand for."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence

from stoker.errors import NotFoundError, SpecError
from stoker.storage.braces import expand_braces
from stoker.storage.globs import compile_glob, escape, has_glob, literal_prefix, max_depth, unescape
from stoker.storage.open import open_store
from stoker.storage.peek import PeekingStore
from stoker.storage.urls import WEB_SCHEMES, local_path, normalize, scheme_of, shown

_NUM_SHOWN = 5
_STAR = re.compile(r"(?<!\\)\*")
_NO_OPTIONS: Mapping[str, str] = {}


def expand(patterns: Sequence[str], options: Mapping[str, str] = _NO_OPTIONS) -> list[str]:
    """The URLs that ``patterns`` stand for, in the order of the patterns; what a wildcard finds is sorted by URL.

    Braces first (``{0000..0146}``, ``{a,b}``), then wildcards (``*``, ``?``, ``[a-z]``, ``**``), which list the
    store. A URL without wildcards is not looked up. Web addresses cannot be listed: there, only braces count.

    Raises:
        SpecError: no pattern, a malformed one, or a URL that two patterns (or one twice) stand for.
        NotFoundError: a pattern with wildcards that nothing matches; the text shows what lies near.
    """
    if isinstance(patterns, (str, os.PathLike)):
        patterns = [os.fspath(patterns)]
    if not patterns:
        raise SpecError("no pattern: expected at least one URL or pattern such as s3://bucket/train-{000..146}.tar")
    origin: dict[str, str] = {}
    for pattern in patterns:
        for url in _expand_one(os.fspath(pattern), options):
            if url in origin:
                raise SpecError(_duplicate(url, origin[url], pattern))
            origin[url] = pattern
    return list(origin)


def _expand_one(pattern: str, options: Mapping[str, str]) -> Iterator[str]:
    for word in expand_braces(pattern):
        if scheme_of(word) in WEB_SCHEMES:
            yield _web_address(word)
        elif has_glob(word):
            yield from _listed(_absolute(word), pattern, options)
        else:
            yield normalize(unescape(word))


def _web_address(word: str) -> str:
    if _STAR.search(word.partition("?")[0]):
        raise SpecError(f"{shown(word)}: a web server cannot be listed; name the files with braces: {{000..146}}")
    return unescape(word)


def anchored(pattern: str) -> list[str]:
    """The pattern as it has to be written in another folder, or for another user, to mean the same files.

    One pattern, but for one that begins with a brace, whose words may lie in several places. The characters of the
    current folder's name are no wildcards.
    """
    if pattern.startswith("{"):
        return [found for word in expand_braces(pattern) for found in anchored(word)]
    if scheme_of(pattern) != "file" or pattern.lower().startswith(("/", "file:/")):
        return [pattern]
    if pattern.startswith("~"):
        return [local_path(pattern)]
    return [f"{escape(local_path('.'))}/{pattern}"]


def _absolute(glob: str) -> str:
    (found,) = anchored(glob)
    return normalize(found)


def _listed(glob: str, pattern: str, options: Mapping[str, str]) -> Iterator[str]:
    store = open_store(glob, options)
    expression = compile_glob(glob)
    is_empty = True
    for found in store.list(literal_prefix(glob), max_depth=max_depth(glob)):
        if expression.fullmatch(found.url):
            is_empty = False
            yield found.url
    if is_empty:
        meaning = "" if glob == pattern else f" (that is {glob!r})"
        raise NotFoundError(f"nothing matches {pattern!r}{meaning}; {_near(glob, store)}")


def _near(glob: str, store: PeekingStore) -> str:
    """What lies in the nearest folder above the pattern that holds anything."""
    folder = literal_prefix(glob).rpartition("/")[0] + "/"
    missing = ""
    while not (names := store.peek(folder)):
        missing = folder
        folder = folder[:-1].rpartition("/")[0] + "/"
        if folder.endswith("://"):
            return f"{missing} is empty"
    wanted = (missing or glob)[len(folder) :].rstrip("/")
    return f"{folder} has {_some_of(names, wanted)}"


def _some_of(names: Sequence[str], wanted: str) -> str:
    close = difflib.get_close_matches(wanted, names, n=_NUM_SHOWN, cutoff=0.3)
    chosen = sorted(close or names[:_NUM_SHOWN])
    return ", ".join(chosen) + (", …" if len(names) > len(chosen) else "")


def _duplicate(url: str, first: str, second: str) -> str:
    where = f"{first!r} twice" if first == second else f"both {first!r} and {second!r}"
    return f"{shown(url)} is named by {where}: its samples would count twice in an epoch; to weigh it, mix sources"
