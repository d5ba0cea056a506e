"""Random numbers: drawn in workers, and left in the trainer's generators, as with torch."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from support.side_by_side import assert_same, epochs
from support.torch_datasets import Drawing, DrawingStream, Numbers, Together, mark, own_seed, with_draw

WORKERS = pytest.mark.parametrize("num_workers", [0, 2])
PERSISTENT = pytest.mark.parametrize("num_workers, persistent", [(0, False), (2, False), (2, True)])


@PERSISTENT
def test_draws_in_samples(num_workers: int, persistent: bool) -> None:
    """Python's, NumPy's and torch's numbers in ``__getitem__``, over three epochs."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(
            Drawing(9), batch_size=2, shuffle=True, num_workers=num_workers, persistent_workers=persistent
        )
        return epochs(loader, 3)

    assert_same(use)


@PERSISTENT
def test_draws_in_collate_and_streams(num_workers: int, persistent: bool) -> None:
    """The same in a collate function, in ``__getitems__`` and in an iterable dataset."""
    settings: dict[str, Any] = {"batch_size": 3, "num_workers": num_workers, "persistent_workers": persistent}

    def use(loader_class: Any) -> Any:
        answer = epochs(loader_class(Together(7), **settings), 2)
        for dataset in (Numbers(7), DrawingStream(7)):
            answer += epochs(loader_class(dataset, collate_fn=with_draw, **settings), 2)
        return answer

    assert_same(use)


@WORKERS
@pytest.mark.parametrize("function", [mark, own_seed])
def test_draws_after_worker_init_fn(num_workers: int, function: Any) -> None:
    """A worker_init_fn draws and seeds after the loader has seeded."""
    assert_same(
        lambda loader_class: epochs(
            loader_class(Drawing(5), num_workers=num_workers, worker_init_fn=function if num_workers else None), 2
        )
    )


@PERSISTENT
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_generator_of_ones_own(num_workers: int, persistent: bool, shuffle: bool) -> None:
    """``generator`` decides order and seeds, is left where torch leaves it, and torch's global one is not touched."""

    def use(loader_class: Any) -> Any:
        generator = torch.Generator().manual_seed(99)
        loader = loader_class(
            Drawing(6),
            batch_size=2,
            shuffle=shuffle,
            num_workers=num_workers,
            persistent_workers=persistent,
            generator=generator,
        )
        answer = []
        for _ in range(2):
            answer += [epochs(loader), generator.get_state()]
        return answer, torch.rand(1)

    assert_same(use)


@WORKERS
@pytest.mark.parametrize("num_taken", [0, 1, 3])
def test_an_epoch_that_is_left(num_workers: int, num_taken: int) -> None:
    """The generators behind a loop that was left, and the next epoch, are torch's."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(Drawing(20), batch_size=2, shuffle=True, num_workers=num_workers)
        answer = [list(itertools.islice(loader, num_taken))]
        answer.append([torch.rand(1)])
        return answer + epochs(loader)

    assert_same(use)


def test_a_loader_that_is_only_made_draws_nothing() -> None:
    """Construction and ``len`` leave all generators as they are."""
    assert_same(lambda loader_class: len(loader_class(Numbers(5), shuffle=True, num_workers=2)))
    assert_same(lambda loader_class: len(iter(loader_class(Numbers(5), shuffle=True, num_workers=2))))
