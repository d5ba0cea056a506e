"""Samplers of torch's and of the user's own, side by side with torch's loader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from support.side_by_side import assert_same, epochs
from support.torch_datasets import Keyed, Numbers
from support.torch_samplers import Backwards, Changing, Drawn, Unequal

WORKERS = pytest.mark.parametrize("num_workers", [0, 2])
COUNT = 13


class Range:
    """No Sampler: iterable, with a length."""

    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[int]:
        yield from (4, 2, 0, 1, 3)


def generator() -> torch.Generator:
    """The user's own."""
    return torch.Generator().manual_seed(7)


SAMPLERS: dict[str, Callable[[], Any]] = {
    "sequential": lambda: SequentialSampler(range(COUNT)),
    "random": lambda: RandomSampler(range(COUNT)),
    "random with replacement": lambda: RandomSampler(range(COUNT), replacement=True, num_samples=70),
    "random with a generator": lambda: RandomSampler(range(COUNT), num_samples=20, generator=generator()),
    "subset": lambda: SubsetRandomSampler([5, 1, 9, 12]),
    "weighted": lambda: WeightedRandomSampler([1.0, 2.0, 0.0, 5.0], 9),
    "weighted with a generator": lambda: WeightedRandomSampler([1.0, 2.0], 9, generator=generator()),
    "list": lambda: [3, 3, 1],
    "range": lambda: range(0, COUNT, 3),
    "iterable": Range,
    "own": lambda: Backwards(COUNT),
    "own that draws": lambda: Drawn(COUNT),
    "tensor": lambda: torch.tensor([4, 0, 2]),
}


@WORKERS
@pytest.mark.parametrize("name", SAMPLERS)
def test_sampler(name: str, num_workers: int) -> None:
    """Two epochs of each kind of sampler."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(Numbers(COUNT), batch_size=4, sampler=SAMPLERS[name](), num_workers=num_workers)
        return len(loader), epochs(loader, 2)

    assert_same(use)


BATCH_SAMPLERS: dict[str, Callable[[], Any]] = {
    "batch sampler": lambda: BatchSampler(RandomSampler(range(COUNT)), 5, drop_last=True),
    "list": lambda: [[1, 2], [3], [4, 5, 6], []],
    "own": lambda: Unequal(4),
    "tuples": lambda: [(1, 2), (0,)],
}


@WORKERS
@pytest.mark.parametrize("name", BATCH_SAMPLERS)
def test_batch_sampler(name: str, num_workers: int) -> None:
    """Two epochs of each kind of batch sampler, with a collate function that takes empty batches."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(
            Numbers(COUNT), batch_sampler=BATCH_SAMPLERS[name](), num_workers=num_workers, collate_fn=tuple
        )
        return len(loader), epochs(loader, 2)

    assert_same(use)


@WORKERS
def test_a_batch_sampler_as_sampler_of_batches(num_workers: int) -> None:
    """batch_size=None with a sampler that gives lists of keys: the dataset itself fetches many."""
    samples = {(1, 2): torch.tensor([1, 2]), ("a", 3): torch.tensor([5])}
    assert_same(
        lambda loader_class: epochs(
            loader_class(Keyed(dict(samples)), batch_size=None, sampler=list(samples), num_workers=num_workers)
        )
    )


@WORKERS
def test_keys_of_any_kind(num_workers: int) -> None:
    """Keys that are no numbers reach the dataset as they are."""
    samples: dict[Any, Any] = {"a": 1, ("b", 2): 2, None: 3, 4.5: 4, b"c": 5}
    assert_same(
        lambda loader_class: epochs(
            loader_class(Keyed(samples), batch_size=2, sampler=list(samples), num_workers=num_workers)
        )
    )


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
def test_distributed_sampler(shuffle: bool, drop_last: bool) -> None:
    """Each rank's share, by epoch."""

    def use(loader_class: Any) -> Any:
        answer = []
        for rank in range(3):
            sampler: Any = DistributedSampler(
                Numbers(COUNT), num_replicas=3, rank=rank, shuffle=shuffle, drop_last=drop_last, seed=5
            )
            loader = loader_class(Numbers(COUNT), batch_size=2, sampler=sampler, num_workers=rank % 2)
            for epoch in range(2):
                loader.sampler.set_epoch(epoch)
                answer += [len(loader), *epochs(loader)]
        return answer

    assert_same(use)


@pytest.mark.parametrize("persistent", [False, True])
def test_set_epoch_of_a_sampler(persistent: bool) -> None:
    """``loader.sampler.set_epoch`` reaches the next epoch, with workers that are kept as well."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(
            Numbers(8), batch_size=3, sampler=Changing(8), num_workers=2, persistent_workers=persistent
        )
        answer = []
        for epoch in (0, 3, 1):
            loader.sampler.set_epoch(epoch)
            answer += epochs(loader)
        return answer

    assert_same(use)


@pytest.mark.parametrize("settings", [{"num_workers": 0}, {"num_workers": 2}, {"num_workers": 1, "prefetch_factor": 5}])
def test_how_far_a_sampler_is_read_ahead(settings: dict[str, Any]) -> None:
    """As many keys are drawn before each batch as torch draws: a sampler's generator is left where torch leaves it."""

    def use(loader_class: Any) -> Any:
        sampler = Backwards(30)
        batches = iter(loader_class(Numbers(30), batch_size=2, sampler=sampler, **settings))
        given = [sampler.given]
        for _ in range(4):
            next(batches)
            given.append(sampler.given)
        return given

    assert_same(use)


@WORKERS
def test_errors_of_samplers(num_workers: int) -> None:
    """What a sampler raises comes where torch raises it."""

    def raising() -> Iterator[int]:
        yield 1
        yield 2
        raise KeyError("the sampler's own")

    class Sized:
        def __len__(self) -> int:
            return 9

        def __iter__(self) -> Iterator[int]:
            return raising()

    def use(loader_class: Any) -> Any:
        loader = loader_class(Numbers(9), sampler=Sized(), num_workers=num_workers)
        answer: list[Any] = []
        try:
            answer.extend(iter(loader))
        except KeyError as error:
            answer.append(str(error))
        return answer if num_workers == 0 else answer[-1]

    assert_same(use)
