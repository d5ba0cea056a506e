"""Functions as a user would write them, importable by name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np


def add_one(fields: dict[str, Any]) -> dict[str, Any]:
    """Change a field in place."""
    fields["x"] += 1
    return fields


def draw(fields: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Draw from a generator of one's own."""
    return {**fields, "drawn": rng.integers(2**62)}


def is_even(fields: dict[str, Any]) -> bool:
    """A verdict."""
    return bool(fields["x"] % 2 == 0)


class Holder:
    """A place for a method."""

    @staticmethod
    def keep(fields: dict[str, Any]) -> dict[str, Any]:
        """Change nothing."""
        return fields


def doubled(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A decorator."""

    @functools.wraps(fn)
    def twice(fields: Any) -> Any:
        return fn(fn(fields))

    return twice


@doubled
def add_two(fields: dict[str, Any]) -> dict[str, Any]:
    """Decorated."""
    return add_one(fields)


COLOURS = frozenset(["red", "green", "blue", "yellow"])


def colourful(fields: dict[str, Any]) -> bool:
    """Has a set among its constants, whose order differs from process to process."""
    return fields["x"] in {"red", "green", "blue", "yellow", "black"}
