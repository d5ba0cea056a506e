"""Measures several ways in rounds, as long as there is time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from stoker.errors import StokerError
from stoker_bench import rounds

T = TypeVar("T")


def in_turn(
    ways: Mapping[str, Callable[[], T]],
    num_rounds: int,
    tell: Callable[[str, T], None],
    settle: Callable[[], None],
    until_s: float = math.inf,
) -> tuple[dict[str, list[T]], dict[str, str]]:
    """What each way gives, round by round, each round in another order; and why a way failed, which is then left out.

    No round begins after ``until_s`` of the monotonic clock but the first, so that each way has as many as the others.
    """
    found: dict[str, list[T]] = {name: [] for name in ways}
    failed: dict[str, str] = {}
    for round_index in range(num_rounds):
        if round_index and time.monotonic() > until_s:
            break
        for name in rounds.rotated(list(ways), round_index):
            if name in failed:
                continue
            settle()
            try:
                found[name].append(ways[name]())
            except (StokerError, OSError, RuntimeError, ValueError) as error:
                failed[name] = f"{type(error).__name__}: {error}"
                del found[name]
            else:
                tell(name, found[name][-1])
    return found, failed
