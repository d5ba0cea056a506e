"""Measures contenders in rounds, each round in another order, so that a drift of the machine falls on all of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from stoker_bench import quiet
from stoker_bench.contender import Contender


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with the smallest and the largest value."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


def rotated(names: Sequence[str], round_index: int) -> list[str]:
    """Return the order of a round: the list turned by one each time, back to front after it has gone round once."""
    cycle, turn = divmod(round_index, len(names))
    order = [*names[turn:], *names[:turn]]
    return order[::-1] if cycle % 2 else order


def measure(
    contenders: Sequence[Contender],
    num_rounds: int,
    num_batches: int,
    tell: Callable[[int, str, float], None],
    settle: Callable[[], None] = quiet.wait,
) -> dict[str, list[float]]:
    """Return each contender's images per second, round by round; ``tell`` hears of each figure as it comes.

    ``settle`` is called before each measurement and returns when the machine is idle.
    """
    by_name = {contender.name: contender for contender in contenders}
    found: dict[str, list[float]] = {name: [] for name in by_name}
    for round_index in range(num_rounds):
        for name in rotated(list(by_name), round_index):
            settle()
            rate = by_name[name].images_per_s(num_batches)
            found[name].append(rate)
            tell(round_index, name, rate)
    return found


def of(
    measured: Mapping[str, Callable[[], float]],
    num_rounds: int,
    settle: Callable[[], None],
    tell: Callable[[str, float], None],
) -> dict[str, list[float]]:
    """Return the figure that each call gives, round by round, each round in another order."""
    found: dict[str, list[float]] = {name: [] for name in measured}
    for round_index in range(num_rounds):
        for name in rotated(list(measured), round_index):
            settle()
            found[name].append(measured[name]())
            tell(name, found[name][-1])
    return found


def ratios(found: Mapping[str, Sequence[float]], ours: str) -> dict[str, Spread]:
    """Return ours over each other contender, divided round by round."""
    return {name: _ratio(found[ours], rates) for name, rates in found.items() if name != ours}


def against(found: Mapping[str, Sequence[float]], base: str) -> dict[str, Spread]:
    """Return each other contender over ``base``, divided round by round."""
    return {name: _ratio(rates, found[base]) for name, rates in found.items() if name != base}


def _ratio(upper: Sequence[float], lower: Sequence[float]) -> Spread:
    return Spread.of([one / other for one, other in zip(upper, lower, strict=True)])
