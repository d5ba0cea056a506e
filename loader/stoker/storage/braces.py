"""Brace patterns, as WebDataset and the shells read them: ``{0000..0146}``, ``{a,b}``, nested, several at once.

``{`` without a comma or ``..`` inside is an ordinary character. A backslash makes the next special character ordinary.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stoker.errors import SpecError

MAX_EXPANSIONS = 10_000_000

_NUMBERS = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?")
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.(-?\d+))?")


@dataclass(frozen=True, slots=True)
class _Choice:
    """One of several sequences of parts."""

    branches: tuple[tuple[_Part, ...], ...]


@dataclass(frozen=True, slots=True)
class _Count:
    """Numbers or letters, counted without being written out; ``width`` pads with zeros."""

    numbers: range
    width: int
    is_letter: bool

    def words(self) -> Iterator[str]:
        return (chr(n) if self.is_letter else _padded(n, self.width) for n in self.numbers)


_Part = str | _Choice | _Count


def expand_braces(pattern: str) -> Iterator[str]:
    """Every word of the pattern, the last brace varying fastest; escapes are left for the next stage."""
    parts = _parse(pattern)
    count = _count(parts)
    if count > MAX_EXPANSIONS:
        raise SpecError(f"{pattern!r} stands for {count} URLs, more than {MAX_EXPANSIONS}")
    return _words(parts)


def _words(parts: Sequence[_Part]) -> Iterator[str]:
    return ("".join(words) for words in itertools.product(*(list(_words_of(part)) for part in parts)))


def _words_of(part: _Part) -> Iterator[str]:
    match part:
        case str():
            return iter((part,))
        case _Count():
            return part.words()
        case _Choice(branches):
            return itertools.chain.from_iterable(_words(branch) for branch in branches)


def _count(parts: Sequence[_Part]) -> int:
    return math.prod(_count_of(part) for part in parts)


def _count_of(part: _Part) -> int:
    match part:
        case str():
            return 1
        case _Count(numbers):
            return len(numbers)
        case _Choice(branches):
            return sum(_count(branch) for branch in branches)


def _parse(pattern: str) -> tuple[_Part, ...]:
    parts, position = _parse_parts(pattern, 0, is_inside=False)
    if position < len(pattern):
        raise SpecError(
            f"{pattern!r} has a '}}' at character {position} that no '{{' opens; \\}} means the character itself"
        )
    return parts


def _parse_parts(pattern: str, position: int, *, is_inside: bool) -> tuple[tuple[_Part, ...], int]:
    parts: list[_Part] = []
    begin = position
    while position < len(pattern):
        character = pattern[position]
        if character == "\\":
            position += 2
        elif character == "{":
            parts.append(pattern[begin:position])
            part, position = _parse_brace(pattern, position)
            parts.append(part)
            begin = position
        elif character == "}" or (is_inside and character == ","):
            break
        else:
            position += 1
    position = min(position, len(pattern))
    parts.append(pattern[begin:position])
    return tuple(part for part in parts if part != ""), position


def _parse_brace(pattern: str, opening: int) -> tuple[_Part, int]:
    branches: list[tuple[_Part, ...]] = []
    position = opening
    while True:
        branch, position = _parse_parts(pattern, position + 1, is_inside=True)
        branches.append(branch)
        if position >= len(pattern):
            raise SpecError(
                f"{pattern!r} has a '{{' at character {opening} that no '}}' closes; \\{{ means the character itself"
            )
        if pattern[position] == "}":
            break
    after = position + 1
    if len(branches) > 1:
        return _Choice(tuple(branches)), after
    inside = pattern[opening + 1 : position]
    counted = _counted(inside, pattern)
    if counted is not None:
        return counted, after
    return _Choice((("{", *branches[0], "}"),)), after


def _counted(inside: str, pattern: str) -> _Count | None:
    if match := _NUMBERS.fullmatch(inside):
        first, last = match.group(1), match.group(2)
        is_padded = any(word.lstrip("-").startswith("0") and len(word.lstrip("-")) > 1 for word in (first, last))
        width = max(len(first), len(last)) if is_padded else 0
        return _Count(_span(int(first), int(last), match.group(3), pattern), width, False)
    if match := _LETTERS.fullmatch(inside):
        return _Count(_span(ord(match.group(1)), ord(match.group(2)), match.group(3), pattern), 0, True)
    return None


def _span(first: int, last: int, step_text: str | None, pattern: str) -> range:
    step = abs(int(step_text)) if step_text else 1
    if step == 0:
        raise SpecError(f"{pattern!r} counts in steps of 0")
    return range(first, last + 1, step) if first <= last else range(first, last - 1, -step)


def _padded(number: int, width: int) -> str:
    return f"{number:0{width}d}" if width else str(number)
