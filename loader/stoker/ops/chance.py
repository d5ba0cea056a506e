"""Uniform numbers turned into draws from other distributions."""

from __future__ import annotations

import math

from stoker.errors import SpecError


def between(low: float, high: float, uniform: float) -> float:
    """A number that is uniform between two others."""
    return low + (high - low) * uniform


def log_between(low: float, high: float, uniform: float) -> float:
    """A positive number whose logarithm is uniform between those of two others."""
    return math.exp(between(math.log(low), math.log(high), uniform))


def whole_below(end: int, uniform: float) -> int:
    """A whole number in ``range(end)``, each equally likely."""
    return min(int(uniform * end), end - 1)


def check_probability(owner: str, p: float) -> None:
    """Raise SpecError unless ``p`` is a probability."""
    if not 0 <= p <= 1:
        raise SpecError(f"{owner}: p is {p}; a probability lies between 0 and 1")


def check_range(owner: str, name: str, limits: tuple[float, float], *, above: float) -> None:
    """Raise SpecError unless ``limits`` is (low, high), the lower not above the higher, both above ``above``."""
    low, high = limits
    if not above < low <= high:
        raise SpecError(f"{owner}: {name} is {limits}; expected (low, high) with {above:g} < low <= high")
