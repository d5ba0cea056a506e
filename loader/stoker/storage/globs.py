"""Glob patterns over URLs: ``*``, ``?``, ``[a-z]``, ``[!a-z]`` inside one folder level, ``**`` across levels.

As in a shell, a wildcard does not match a leading dot of a name. A backslash makes the next character ordinary.
"""

from __future__ import annotations

import re

_SPECIAL = re.compile(r"[*?\[]")
_ESCAPED = re.compile(r"\\([\\{},*?\[\]])")


def has_glob(pattern: str) -> bool:
    """Whether the pattern holds a wildcard that is not escaped."""
    return _SPECIAL.search(_ESCAPED.sub("..", pattern)) is not None


def unescape(pattern: str) -> str:
    """The name that a pattern without wildcards means."""
    return _ESCAPED.sub(r"\1", pattern)


def escape(name: str) -> str:
    """The pattern that matches exactly ``name``."""
    return re.sub(r"([\\{},*?\[\]])", r"\\\1", name)


def literal_prefix(pattern: str) -> str:
    """What every match begins with."""
    return unescape(pattern[: _first_wildcard(pattern)])


def max_depth(pattern: str) -> int | None:
    """How many folders below that of the literal prefix a match can lie; None: any number."""
    rest = pattern[_first_wildcard(pattern) :]
    return None if "**" in rest else rest.count("/")


def _first_wildcard(pattern: str) -> int:
    position = 0
    while position < len(pattern) and pattern[position] not in "*?[":
        position += 2 if _ESCAPED.match(pattern, position) else 1
    return position


def compile_glob(pattern: str) -> re.Pattern[str]:
    """A regular expression for ``fullmatch``."""
    out: list[str] = []
    position = 0
    while position < len(pattern):
        at_start = position > 0 and pattern[position - 1] == "/"
        piece, position = _piece(pattern, position, at_start=at_start)
        out.append(piece)
    return re.compile("".join(out), re.DOTALL)


def _piece(pattern: str, position: int, *, at_start: bool) -> tuple[str, int]:
    no_dot = r"(?!\.)" if at_start else ""
    character = pattern[position]
    if character == "*":
        return _stars(pattern, position, at_start=at_start, no_dot=no_dot)
    if character == "?":
        return no_dot + "[^/]", position + 1
    if character == "[" and (found := _set(pattern, position)):
        return no_dot + found[0], found[1]
    if match := _ESCAPED.match(pattern, position):
        return re.escape(match.group(1)), match.end()
    return re.escape(character), position + 1


def _stars(pattern: str, position: int, *, at_start: bool, no_dot: str) -> tuple[str, int]:
    end = position
    while end < len(pattern) and pattern[end] == "*":
        end += 1
    is_whole_name = at_start and (end == len(pattern) or pattern[end] == "/")
    if not is_whole_name:
        return no_dot + "[^/]*", end
    if end - position == 1:
        return no_dot + "[^/]+", end
    folders = r"(?:(?!\.)[^/]+/)*"
    return (folders, end + 1) if end < len(pattern) else (folders + r"(?!\.)[^/]+", end)


def _set(pattern: str, opening: int) -> tuple[str, int] | None:
    begin = opening + 1
    is_negated = pattern[begin : begin + 1] in ("!", "^")
    begin += is_negated
    closing = pattern.find("]", begin + 1)  # a ] right after the opening is a member
    if closing < 0:
        return None
    members = pattern[begin:closing].replace("\\", r"\\").replace("[", r"\[").replace("]", r"\]")
    members = members.replace("^", r"\^").replace("&", r"\&").replace("~", r"\~").replace("|", r"\|")
    members = re.sub("--+", r"\\-", members)  # several in a row mean a hyphen; re would warn of a set difference
    try:
        re.compile(f"[{members}]")
    except re.error:
        return None  # such as [z-a]: nothing can match it, so it means itself
    return (rf"(?!/)[{'^' if is_negated else ''}{members}]", closing + 1)
