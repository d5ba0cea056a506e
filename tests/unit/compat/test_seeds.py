"""Seeding: torch's numbers for workers, numbers of its own for each sample."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from stoker.compat.seeds import AFTER_THE_ROWS, seed_sample, seed_worker


@pytest.fixture(autouse=True)
def _own_generators() -> Iterator[None]:
    """The generators of the test process are put back."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


class _Drawing(torch.utils.data.Dataset[tuple[float, int, int, int]]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[float, int, int, int]:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        return (*_drawn(), info.seed)


def _drawn() -> tuple[float, int, int]:
    return random.random(), int(np.random.randint(1 << 30)), int(torch.randint(1 << 30, ()))


@pytest.mark.parametrize("seed", [0, 7, 11])
def test_workers_draw_what_torchs_workers_draw(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    base_seed = int(torch.empty((), dtype=torch.int64).random_(generator=torch.Generator().manual_seed(seed)))
    loader: Any = torch.utils.data.DataLoader(
        _Drawing(), batch_size=None, num_workers=2, generator=generator, multiprocessing_context="fork"
    )
    theirs = [tuple(each) for each in loader]
    ours = []
    for index in range(2):
        worker_seed = seed_worker(base_seed, index)
        ours.append((*_drawn(), worker_seed))
    assert ours == theirs


def test_a_sample_draws_the_same_after_whatever() -> None:
    seed_sample(5, 3, 2)
    first = _drawn()
    _drawn()
    seed_sample(5, 3, 2)
    assert _drawn() == first


def test_samples_draw_differently() -> None:
    seen = set()
    places = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, AFTER_THE_ROWS), (2**62, 2**40, 2**30), (-1, 0, 0)]
    for base_seed, batch_index, row in places:
        seed_sample(base_seed, batch_index, row)
        seen |= set(_drawn())
    assert len(seen) == 3 * len(places)


def test_normal_numbers_come_in_no_pairs_over_samples() -> None:
    seed_sample(1, 0, 0)
    np.random.normal()  # NumPy keeps the other of the pair
    random.gauss(0, 1)
    torch.randn(1)
    seed_sample(1, 0, 1)
    after = np.random.normal(), random.gauss(0, 1), torch.randn(1).item()
    seed_sample(1, 0, 1)
    assert (np.random.normal(), random.gauss(0, 1), torch.randn(1).item()) == after


def test_seeding_a_sample_does_not_pile_up_work_for_cuda() -> None:
    before = len(torch.cuda._queued_calls)
    for row in range(20):
        seed_sample(1, 0, row)
    assert len(torch.cuda._queued_calls) == before
