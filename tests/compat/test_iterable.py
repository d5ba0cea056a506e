"""Iterable datasets, side by side with torch's loader."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from torch.utils.data import ChainDataset

from support.side_by_side import assert_same, epochs, flags, named
from support.torch_datasets import (
    Breaking,
    CountingStream,
    Endless,
    Ranged,
    Sharded,
    SizedSharded,
    SizedStream,
    Stream,
    Uneven,
    as_list,
    cut_range,
)

BATCHING = pytest.mark.parametrize(
    "settings",
    [
        {},
        {"batch_size": 4},
        {"batch_size": 4, "drop_last": True},
        {"batch_size": None},
        {"batch_size": None, "collate_fn": str},
    ],
    ids=named,
)
PERSISTENT = pytest.mark.parametrize("num_workers, persistent", [(0, False), (2, False), (2, True)])


@PERSISTENT
@BATCHING
def test_sharded(num_workers: int, persistent: bool, settings: dict[str, Any]) -> None:
    """A dataset that shares itself out over the workers by ``get_worker_info``; two epochs."""

    def use(loader_class: Any) -> Any:
        return epochs(loader_class(Sharded(21), num_workers=num_workers, persistent_workers=persistent, **settings), 2)

    assert_same(use)


@BATCHING
def test_copies(settings: dict[str, Any]) -> None:
    """``replicas="torch"``: a dataset that never asks is read by each worker, as torch does."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(Stream(9), num_workers=2, **settings, **flags(loader_class, replicas="torch"))
        return epochs(loader, 2)

    assert_same(use)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_one_reader_needs_no_flag(num_workers: int) -> None:
    """With one reader, what never asks is what torch gives."""
    assert_same(lambda loader_class: epochs(loader_class(Stream(9), batch_size=2, num_workers=num_workers), 2))


@pytest.mark.parametrize("counts", [(5, 0), (0, 5), (1, 9), (9, 1), (0, 0), (8, 8)])
@pytest.mark.parametrize(
    "settings", [{"batch_size": 2}, {"batch_size": 2, "drop_last": True}, {"batch_size": None}], ids=named
)
def test_uneven_workers(counts: tuple[int, ...], settings: dict[str, Any]) -> None:
    """Workers that end at different times."""
    assert_same(lambda loader_class: epochs(loader_class(Uneven(counts), num_workers=2, **settings), 2))


def test_three_uneven_workers_that_are_kept() -> None:
    """Kept workers all come back in the next epoch."""
    assert_same(
        lambda loader_class: epochs(
            loader_class(Uneven((7, 0, 3)), batch_size=2, num_workers=3, persistent_workers=True), 3
        )
    )


@pytest.mark.parametrize("persistent", [False, True])
def test_worker_init_fn_shares_out(persistent: bool) -> None:
    """torch's documented way: worker_init_fn narrows each worker's copy."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(
            Ranged(3, 18), batch_size=3, num_workers=2, worker_init_fn=cut_range, persistent_workers=persistent
        )
        return epochs(loader, 2)

    assert_same(use)


@PERSISTENT
def test_what_a_stream_keeps(num_workers: int, persistent: bool) -> None:
    """Kept workers keep their dataset; others get a fresh copy for each epoch."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(CountingStream(6), num_workers=num_workers, persistent_workers=persistent)
        return epochs(loader, 3)

    assert_same(use)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_chain(num_workers: int) -> None:
    """ChainDataset."""
    dataset: Any = ChainDataset([Sharded(5), Sharded(4)])
    assert_same(lambda loader_class: epochs(loader_class(dataset, batch_size=2, num_workers=num_workers)))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_endless_stream(num_workers: int) -> None:
    """What never ends is read as far as it is asked for, again from the start each time."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(Endless(), batch_size=3, num_workers=num_workers)
        return [list(itertools.islice(loader, 6)) for _ in range(2)]

    assert_same(use)


def test_an_error_in_a_stream() -> None:
    """The batches before it come, then the error, then the end."""

    def use(loader_class: Any) -> Any:
        batches = iter(loader_class(Breaking(20), batch_size=2))
        answer: list[Any] = []
        for _ in range(6):
            try:
                answer.append(next(batches))
            except (ValueError, StopIteration) as error:
                answer.append(repr(error))
        return answer

    assert_same(use)


@pytest.mark.parametrize("length", [2, 6, 9])
@pytest.mark.parametrize(
    "settings", [{}, {"batch_size": 4}, {"batch_size": 4, "drop_last": True}, {"batch_size": None}], ids=named
)
def test_length(length: int, settings: dict[str, Any]) -> None:
    """``len`` of a stream that has one; more than it said gives torch's warning, if ``len`` was asked for."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(SizedStream(6, length), **settings)
        unasked = list(loader)
        return unasked, len(loader), list(loader)

    assert_same(use)


def test_length_with_workers() -> None:
    """The same with workers."""

    def use(loader_class: Any) -> Any:
        answer: list[Any] = []
        for dataset in (SizedSharded(10), SizedStream(10, 5)):
            loader = loader_class(dataset, batch_size=2, num_workers=2, **flags(loader_class, replicas="torch"))
            answer += [len(loader), list(loader)]
        return answer

    assert_same(use)


def test_out_of_order_gives_the_same_samples() -> None:
    """in_order=False: each sample once."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(Uneven((9, 4)), batch_size=2, num_workers=2, in_order=False, collate_fn=as_list)
        return sorted(sample for batch in loader for sample in batch)

    assert_same(use)
