"""Map-style datasets: every argument, side by side with torch's loader."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, StackDataset, Subset, TensorDataset, random_split

from support.side_by_side import assert_same, epochs, named
from support.torch_datasets import Counting, Keyed, Numbers, Together, as_boxes, as_list

WORKERS = pytest.mark.parametrize("num_workers", [0, 2])


@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
@pytest.mark.parametrize("shuffle", [False, True])
def test_workers_and_shuffle(num_workers: int, shuffle: bool) -> None:
    """Three epochs of any number of workers; 3 of them on two cores give torch's warning."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(Numbers(23), batch_size=4, shuffle=shuffle, num_workers=num_workers)
        return len(loader), epochs(loader, 3)

    assert_same(use)


@WORKERS
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"batch_size": 10, "drop_last": True},
        {"batch_size": 100},
        {"batch_size": 100, "drop_last": True},
        {"batch_size": None},
        {"batch_size": None, "collate_fn": as_list, "shuffle": True},
        {"batch_size": 5, "collate_fn": as_list},
        {"batch_size": 5, "collate_fn": as_boxes},
        {"batch_size": 2, "timeout": 0.0, "pin_memory_device": ""},
    ],
    ids=named,
)
def test_batching(num_workers: int, settings: dict[str, Any]) -> None:
    """batch_size, drop_last, collate_fn, and their length."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(Numbers(23), num_workers=num_workers, **settings)
        return len(loader), epochs(loader)

    assert_same(use)


@pytest.mark.parametrize("settings", [{"prefetch_factor": 1}, {"prefetch_factor": 7}, {"timeout": 60}], ids=named)
def test_arguments_of_workers(settings: dict[str, Any]) -> None:
    """prefetch_factor and a timeout that does not pass change nothing."""
    assert_same(lambda loader_class: epochs(loader_class(Numbers(9), batch_size=2, num_workers=2, **settings), 2))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("as_object", [False, True])
def test_start_methods(method: str, as_object: bool) -> None:
    """multiprocessing_context by name and as an object; torch's batches are the same for each."""
    from torch import multiprocessing

    context: Any = multiprocessing.get_context(method) if as_object else method

    def use(loader_class: Any) -> Any:
        chosen = context if loader_class.__module__.startswith("stoker") else "fork"
        loader = loader_class(Numbers(7), batch_size=2, shuffle=True, num_workers=1, multiprocessing_context=chosen)
        return epochs(loader, 2)

    assert_same(use)


@WORKERS
def test_out_of_order_gives_the_same_batches(num_workers: int) -> None:
    """in_order=False: each batch once, in whatever sequence."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(Numbers(23), batch_size=3, num_workers=num_workers, in_order=False)
        return [sorted((batch[2] for batch in batches), key=str) for batches in epochs(loader, 2)]

    assert_same(use)


@WORKERS
def test_datasets_of_datasets(num_workers: int) -> None:
    """Subset, ConcatDataset, TensorDataset, StackDataset, random_split, and each inside another."""
    tensors = TensorDataset(torch.arange(12).reshape(6, 2), torch.linspace(0, 1, 6, dtype=torch.float64))
    split = random_split(Numbers(10), [0.5, 0.5], torch.Generator().manual_seed(1))
    datasets: list[Any] = [
        Subset(Numbers(30), [3, 20, 29, 3]),
        ConcatDataset([Numbers(4), Subset(Numbers(9), range(2, 5))]),
        tensors,
        StackDataset(tensors, Numbers(6)),
        StackDataset(image=tensors, text=Numbers(6)),
        split[1],
        Together(7),
        Subset(Together(7), [6, 0, 2]),
        Keyed({0: {"a": 1, "b": [torch.ones(2), "x"]}, 1: {"a": 2, "b": [torch.zeros(2), "y"]}}),
        [10, 11, 12],
        ("a", "b", "c"),
    ]
    for dataset in datasets:
        assert_same(partial(_two_at_a_time, dataset=dataset, num_workers=num_workers))


def _two_at_a_time(loader_class: Any, **settings: Any) -> Any:
    return epochs(loader_class(batch_size=2, **settings))


@WORKERS
@pytest.mark.parametrize("persistent", [False, True])
def test_a_dataset_that_changes(num_workers: int, persistent: bool) -> None:
    """What a dataset keeps in its worker, and what the trainer changes in it between epochs: as with torch."""
    if persistent and not num_workers:
        pytest.skip("torch wants workers for this")

    def use(loader_class: Any) -> Any:
        dataset = Counting(6)
        loader = loader_class(
            dataset, batch_size=2, num_workers=num_workers, persistent_workers=persistent, collate_fn=as_list
        )
        answer = epochs(loader, 2)
        for _ in range(2):
            dataset.change()
            answer += epochs(loader)
        return answer, dataset.calls

    assert_same(use)


@WORKERS
def test_other_functions_set_later(num_workers: int) -> None:
    """What torch allows to be set after construction counts from the next epoch on."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(Numbers(5), batch_size=2, num_workers=num_workers)
        answer = epochs(loader)
        loader.collate_fn = as_list
        answer += epochs(loader)
        loader.generator = torch.Generator().manual_seed(3)
        loader.worker_init_fn = None
        return answer + epochs(loader)

    assert_same(use)


@WORKERS
def test_an_empty_dataset(num_workers: int) -> None:
    """No batch, length 0, any number of times; with shuffle as torch has it."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(Numbers(0), batch_size=2, num_workers=num_workers)
        return len(loader), epochs(loader, 2)

    assert_same(use)
    assert_same(
        lambda loader_class: epochs(loader_class(Numbers(0), shuffle=True, num_workers=num_workers)), may_fail=True
    )


def test_a_large_batch() -> None:
    """Batches of many megabytes, and more of them than may be on their way."""
    dataset = TensorDataset(torch.arange(12 * (1 << 18), dtype=torch.int32).reshape(12, 1 << 18))

    def use(loader_class: Any) -> Any:
        sums = [batch.sum().item() for (batch,) in loader_class(dataset, batch_size=3, num_workers=2)]
        return sums, [batch[:, ::1000].clone() for (batch,) in loader_class(dataset, batch_size=3, num_workers=2)]

    assert_same(use)
