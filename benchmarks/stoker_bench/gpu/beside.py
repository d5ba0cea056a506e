"""A model's steps alone, and beside each of several loaders, in rounds."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import stoker
from stoker_bench import rates
from stoker_bench.gpu import taking, turns
from stoker_bench.rounds import Spread

if TYPE_CHECKING:  # where there is no PyTorch, the options are of use all the same
    from stoker_bench.gpu.training import Step, Trainer

ALONE = "alone"

Open = Callable[[], stoker.DataLoader]


@dataclass(frozen=True, slots=True)
class Steps:
    """Batches of how many pictures of which size, and how many steps a round."""

    batch_size: int = 128
    size: int = 224
    num_rounds: int = 5
    warm_up: int = 10
    num_steps: int = 30


def measure(
    trainer: Trainer,
    loaders: Mapping[str, Open],
    steps: Steps,
    tell: Callable[[str, Step], None],
    settle: Callable[[], None],
    until_s: float = math.inf,
) -> dict[str, Any]:
    """Return the figures of each way by name, with how much slower its steps are than alone, or why there are none."""

    def alone() -> Step:
        same = itertools.repeat(trainer.batch(steps.batch_size, steps.size))
        return trainer.measure(same, steps.warm_up, steps.num_steps)

    def beside(open_loader: Open) -> Step:
        with open_loader() as loader:
            return trainer.measure(rates.endless(loader), steps.warm_up, steps.num_steps)

    ways = {ALONE: alone} | {name: functools.partial(beside, opened) for name, opened in loaders.items()}
    found, failed = turns.in_turn(ways, steps.num_rounds, tell, settle, until_s)
    figures: dict[str, Any] = {way: taking.spreads(many) for way, many in found.items()}
    for way, many in found.items() if ALONE in found else ():
        pairs = zip(many, found[ALONE], strict=True)
        figures[way]["slower"] = asdict(Spread.of([one.step_s / other.step_s for one, other in pairs]))
    return figures | {way: {"failed": why} for way, why in failed.items()}
