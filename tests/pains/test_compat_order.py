"""Order, counts and random numbers of a torch dataset do not depend on its workers (pains 4, 18, 19, 70)."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from typing import Any

import pytest
import torch

from stoker.compat.loader import DataLoader
from support.torch_datasets import Drawing, Endless, Numbers, Sharded, SizedStream, Stream, as_list

WORKER_COUNTS = (0, 1, 3)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("settings", [{"batch_size": 7}, {"batch_size": None}])
def test_each_sample_of_a_stream_comes_once(settings: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """Pain 4: a stream that asks nobody which part is its own is read once, not once per worker; one line says so."""
    with caplog.at_level(logging.INFO, "stoker"), DataLoader(Stream(100), num_workers=4, **settings) as loader:
        for _ in range(2):
            ids = torch.cat([torch.as_tensor(batch).reshape(-1) for batch in loader]).tolist()
            assert Counter(ids) == Counter(range(100))
    assert len([record for record in caplog.records if "get_worker_info" in record.getMessage()]) == 1


def test_copies_on_demand() -> None:
    """Pain 4: ``replicas="torch"`` gives each worker's copy, as torch does."""
    loader = DataLoader(Stream(10), num_workers=2, replicas="torch")
    assert Counter(int(batch) for batch in loader) == dict.fromkeys(range(10), 2)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("seeding", ["worker", "sample"])
def test_no_random_number_comes_twice(seeding: Any) -> None:
    """Pain 18: 4 workers, 2 epochs: all numbers of Python, NumPy and torch are distinct."""
    torch.manual_seed(11)
    loader: Any = DataLoader(Drawing(40), 5, num_workers=4, seeding=seeding)
    batches = [batch for _ in range(2) for batch in loader]
    for name in ("python", "numpy", "integer"):
        numbers = [number for batch in batches for number in batch[name].tolist()]
        assert len(set(numbers)) == 80, name


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_random_numbers_do_not_depend_on_workers() -> None:
    """Pain 18: ``seeding="sample"``: each sample draws the same with 0, 1 and 3 workers, in each of two epochs."""

    def drawn(num_workers: int, **settings: Any) -> str:
        loader = DataLoader(
            Drawing(30),
            batch_size=4,
            shuffle=True,
            num_workers=num_workers,
            generator=torch.Generator().manual_seed(5),
            seeding="sample",
            **settings,
        )
        told = [{name: values.tolist() for name, values in batch.items()} for _ in range(2) for batch in loader]
        return hashlib.sha256(repr(told).encode()).hexdigest()

    digests = [drawn(num_workers) for num_workers in WORKER_COUNTS] + [drawn(1, prefetch_factor=5)]
    assert set(digests) == {digests[0]}


class Jittered(Numbers):
    """Takes a different time for each sample, and another in each process."""

    def __getitem__(self, index: int) -> Any:
        sum(range(hash(f"{id(self)} {index}") % 50_000))
        return index


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_order_does_not_depend_on_workers() -> None:
    """Pain 19: 1,000 ids come in the same order with 0, 1 and 3 workers and with threads, whatever a sample takes."""

    def order(num_workers: int, **settings: Any) -> list[int]:
        generator = torch.Generator().manual_seed(6)
        loader = DataLoader(Jittered(1000), 8, shuffle=True, num_workers=num_workers, generator=generator, **settings)
        return [number for batch in loader for number in batch.tolist()]

    orders = [order(num_workers) for num_workers in WORKER_COUNTS]
    orders.append(order(2, worker_method="thread"))
    assert sorted(orders[0]) == list(range(1000))
    assert [found == orders[0] for found in orders] == [True] * 4


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_batches_are_lost_by_nobody() -> None:
    """Pain 19: the number of batches is that of one process, and drop_last drops one batch at most."""
    for num_workers in WORKER_COUNTS:
        loader = DataLoader(Numbers(100), 32, num_workers=num_workers, drop_last=True, collate_fn=as_list)
        assert [len(batch) for batch in loader] == [32, 32, 32]


def test_length_is_right_or_an_error() -> None:
    """Pain 70: the number of batches; of a stream from the length it has; a TypeError if it has none."""
    for settings in ({"batch_size": 4}, {"batch_size": 4, "drop_last": True}, {"batch_size": None}):
        for dataset in (Numbers(10), SizedStream(10, 10)):
            loader: Any = DataLoader(dataset, **settings)
            assert len(loader) == len(list(loader))
    for endless in (Endless(), Sharded(5)):
        with pytest.raises(TypeError, match=r"has no len\(\)"):
            len(DataLoader(endless))


def test_length_of_a_stream_with_workers() -> None:
    """Pain 70: each sample comes once, so the length that a stream claims is right with workers as well: no warning."""
    loader: Any = DataLoader(SizedStream(10, 10), 3, num_workers=2)
    assert len(loader) == len(list(loader)) == 4
