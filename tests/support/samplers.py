"""Samplers of every kind, for the tests of what a loader saves."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler
from torchdata.stateful_dataloader import sampler as torchdata_sampler

Arguments = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """How a loader over ``num_samples`` samples, in batches, gets its sampler; made anew in each process.

    ``repeats``: the epochs after a resumed one are those of an uninterrupted run, whatever the process drew meanwhile.
    ``draws_late``: an epoch's order is decided when its first batch is wanted, and nobody can know before by what.
    ``is_large``: it depends on two states of generators, each of which is 2.5 KB.
    """

    name: str
    arguments: Callable[[int, int, bool], Arguments]
    repeats: bool = True
    draws_late: bool = False
    is_large: bool = False

    def __repr__(self) -> str:
        return self.name


def seeded(seed: int = 7) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class EachStep(Sampler[int]):
    """Draws each index when it is wanted, from a generator of the process."""

    def __init__(self, num_samples: int, draw: Callable[[int], Any]) -> None:
        self.num_samples, self.draw = num_samples, draw

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.num_samples):
            yield int(self.draw(self.num_samples))


class AtOnce(Sampler[int]):
    """Draws all when ``iter()`` is called, from a generator of its own or the process's."""

    def __init__(self, num_samples: int, generator: Any) -> None:
        self.num_samples, self.rng = num_samples, generator

    def __iter__(self) -> Iterator[int]:
        order = list(range(self.num_samples))
        (self.rng or random).shuffle(order)
        return iter(order)


class Buckets(Sampler[list[int]]):
    """Batches of different lengths, without a length of its own; draws at once."""

    def __init__(self, num_samples: int, generator: torch.Generator | None) -> None:
        self.num_samples, self.generator = num_samples, generator

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(self.num_samples, generator=self.generator).tolist()
        cuts = [0, *range(1, self.num_samples, 3), self.num_samples]
        return iter([order[low:high] for low, high in pairwise(cuts)])


class CountsEpochs(Sampler[int]):
    """Goes on to the next epoch by itself, when it has come to its end."""

    def __init__(self, num_samples: int) -> None:
        self.num_samples, self.epoch = num_samples, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        yield from torch.randperm(self.num_samples, generator=seeded(self.epoch)).tolist()
        self.epoch += 1


class SeededByEpoch(Sampler[int]):
    """Seeds its generator when it is told the epoch, and draws from it ever after."""

    def __init__(self, num_samples: int) -> None:
        self.num_samples, self.generator = num_samples, torch.Generator()
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.generator.manual_seed(epoch)

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.num_samples):
            yield int(torch.randint(self.num_samples, (), generator=self.generator))


class KeepsItself(Sampler[int]):
    """Has a state, as torchdata has it; takes pride in the order of its own."""

    def __init__(self, num_samples: int) -> None:
        self.num_samples, self.round, self.given = num_samples, 0, 0

    def __iter__(self) -> Iterator[int]:
        while self.given < self.num_samples:
            self.given += 1
            yield (self.given * 5 + self.round) % self.num_samples
        self.round, self.given = self.round + 1, 0

    def state_dict(self) -> dict[str, Any]:
        return {"round": self.round, "given": self.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.round, self.given = state["round"], state["given"]


def _sampler(make: Callable[[int], Any]) -> Callable[[int, int, bool], Arguments]:
    return lambda num, batch, drop: {"sampler": make(num), "batch_size": batch, "drop_last": drop}


def _batch_sampler(make: Callable[[int, int, bool], Any]) -> Callable[[int, int, bool], Arguments]:
    return lambda num, batch, drop: {"batch_sampler": make(num, batch, drop)}


def _shuffled(generator: Callable[[], torch.Generator | None]) -> Callable[[int, int, bool], Arguments]:
    return lambda num, batch, drop: {
        "shuffle": True,
        "batch_size": batch,
        "drop_last": drop,
        "generator": generator(),
    }


def _with_replacement(num: int) -> RandomSampler:
    return RandomSampler(range(num), replacement=True, num_samples=40 + num, generator=seeded())


def _distributed(rank: int, world_size: int, **options: Any) -> Callable[[int], Any]:
    return lambda num: DistributedSampler(range(num), num_replicas=world_size, rank=rank, **options)  # type: ignore[arg-type]


def _weights(num: int) -> list[float]:
    return [1.0 + i for i in range(num)]


KINDS = (
    Kind("sequential", lambda num, batch, drop: {"batch_size": batch, "drop_last": drop}),
    Kind("sequential, one by one", lambda num, batch, drop: {"batch_size": None}),
    Kind("sequential with a generator", lambda num, batch, drop: {"batch_size": batch, "generator": seeded()}),
    Kind("shuffled", _shuffled(lambda: None), repeats=False),
    Kind("shuffled with a generator", _shuffled(seeded)),
    Kind(
        "random, more than all", _sampler(lambda num: RandomSampler(range(num), num_samples=2 * num + 1)), repeats=False
    ),
    Kind("random with replacement", _sampler(lambda num: RandomSampler(range(num), replacement=True)), repeats=False),
    Kind("random with replacement and a generator", _sampler(_with_replacement)),
    Kind("weighted", _sampler(lambda num: WeightedRandomSampler(_weights(num), num + 3))),
    Kind("weighted with a generator", _sampler(lambda num: WeightedRandomSampler(_weights(num), num, True, seeded()))),
    Kind("subset", _sampler(lambda num: SubsetRandomSampler(range(0, num, 2)))),
    Kind("subset with a generator", _sampler(lambda num: SubsetRandomSampler(range(num), seeded()))),
    Kind("distributed 0 of 1", _sampler(_distributed(0, 1))),
    Kind("distributed 1 of 2", _sampler(_distributed(1, 2, seed=3))),
    Kind("distributed 2 of 3, drop_last", _sampler(_distributed(2, 3, drop_last=True))),
    Kind("distributed 0 of 3, in order", _sampler(_distributed(0, 3, shuffle=False))),
    Kind("each step, python", _sampler(lambda num: EachStep(num, random.randrange)), draws_late=True),
    Kind(
        "each step, numpy",
        _sampler(lambda num: EachStep(num, np.random.randint)),  # the generator of the process is meant
        draws_late=True,
    ),
    Kind(
        "each step, torch",
        _sampler(lambda num: EachStep(num, lambda high: int(torch.randint(high, ())))),
        draws_late=True,
    ),
    Kind("at once, the process's", _sampler(lambda num: AtOnce(num, None)), draws_late=True),
    Kind("at once, python's own", _sampler(lambda num: AtOnce(num, random.Random(4)))),
    Kind("at once, numpy's own", _sampler(lambda num: AtOnce(num, np.random.default_rng(4)))),
    Kind(
        "at once, one by one", lambda num, batch, drop: {"sampler": AtOnce(num, random.Random(4)), "batch_size": None}
    ),
    Kind(
        "at once, the process's, one by one",
        lambda num, batch, drop: {"sampler": AtOnce(num, None), "batch_size": None},
    ),
    Kind("buckets", _batch_sampler(lambda num, batch, drop: Buckets(num, seeded()))),
    Kind("buckets of the process's", _batch_sampler(lambda num, batch, drop: Buckets(num, None)), is_large=True),
    Kind("a list", _sampler(lambda num: [*range(num)][::-1])),
    Kind(
        "batches of one's own",
        _batch_sampler(lambda num, batch, drop: BatchSampler(SequentialSampler(range(num)), batch, drop)),
    ),
    Kind("counts epochs", _sampler(CountsEpochs)),
    Kind("seeded by epoch", _sampler(SeededByEpoch)),
    Kind("keeps itself", _sampler(KeepsItself)),
    Kind("torchdata random", _sampler(lambda num: torchdata_sampler.RandomSampler(range(num), generator=seeded()))),
    Kind(
        "torchdata distributed",
        _sampler(lambda num: torchdata_sampler.StatefulDistributedSampler(range(num), num_replicas=2, rank=1)),
    ),
    Kind(
        "torchdata batches",
        _batch_sampler(
            lambda num, batch, drop: torchdata_sampler.BatchSampler(AtOnce(num, random.Random(4)), batch, drop)
        ),
    ),
)
