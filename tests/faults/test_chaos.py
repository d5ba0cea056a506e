"""Whatever dies, freezes or is cut off: what is consumed is local mode's stream.

A handful of seeds by default; ``STOKER_CHAOS_SEEDS=200`` runs the first 200, ``STOKER_CHAOS_SEEDS=17-18`` those from 17
to below 18. The seed is the test's name, and draws the same schedule everywhere (``faults/schedule.py``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator

import pytest

from faults.chaos import Chaos
from faults.schedule import draw

DEFAULT_SEEDS = "10"


def seeds() -> range:
    first, _, last = os.environ.get("STOKER_CHAOS_SEEDS", DEFAULT_SEEDS).rpartition("-")
    return range(int(first or 0), int(last))


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[bool], Chaos]]:
    """Gives the cluster that all seeds share, or another one where the last run has spoilt it."""
    held: list[Chaos] = []

    def give(spoilt: bool) -> Chaos:
        if spoilt:
            held.pop().close()
        if not held:
            held.append(Chaos(tmp_path_factory.mktemp("chaos")))
        return held[0]

    yield give
    for chaos in held:
        chaos.close()


_spoilt: list[int] = []


@pytest.mark.parametrize("seed", seeds())
def test_what_is_consumed_is_the_local_stream(fresh: Callable[[bool], Chaos], seed: int) -> None:
    """Pain 24, and issue 3: kills, freezes, drains and a failing network lose, double and swap nothing."""
    plan = draw(seed)
    chaos = fresh(bool(_spoilt))
    _spoilt[:] = [seed]
    sys.stderr.write(f"{plan}\n")
    try:
        longest_s = chaos.run(plan)
    except BaseException:
        sys.stderr.write(chaos.logs() + "\n")
        raise
    _spoilt.clear()
    sys.stderr.write(f"seed {seed}: the longest wait for a batch was {longest_s:.2f} s\n")
