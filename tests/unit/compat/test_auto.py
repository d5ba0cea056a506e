"""Threads or processes: which of them suits a dataset."""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset

from stoker.compat import DataLoader, auto

WAIT_S = 20.0


class Clock:
    """Counts a tick for each sample of one thread, and half a tick where two threads fetch; see the module's clock."""

    def __init__(self, *, is_shared: bool) -> None:
        self._is_shared = is_shared
        self._lock = threading.Lock()
        self._now_s = 0.0
        self._main = threading.get_ident()

    def tick(self) -> None:
        together = threading.get_ident() != self._main
        with self._lock:
            self._now_s += 0.005 if together and not self._is_shared else 0.01

    def perf_counter(self) -> float:
        return self._now_s


class Ticks:
    """A dataset that takes its time by the clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __len__(self) -> int:
        return 100

    def __getitem__(self, key: int) -> int:
        self._clock.tick()
        return key


@pytest.mark.parametrize("is_shared,chosen", [(True, "multiprocessing"), (False, "thread")])
def test_threads_if_two_of_them_fetch_more_than_one(
    monkeypatch: pytest.MonkeyPatch, is_shared: bool, chosen: str
) -> None:
    clock = Clock(is_shared=is_shared)
    monkeypatch.setattr(auto, "time", clock)
    assert auto.choose(DataLoader(Ticks(clock), num_workers="auto")) == chosen  # type: ignore[arg-type]


class Hashes:
    """Samples whose making releases the lock for a while; the real clock measures."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, key: int) -> bytes:
        return hashlib.sha256(bytes(1 << 20)).digest()


def test_it_measures_real_datasets_too() -> None:
    assert auto.choose(DataLoader(Hashes(), num_workers="auto")) in {"thread", "multiprocessing"}  # type: ignore[arg-type]


class Draws:
    """Samples that are drawn from a global generator."""

    def __init__(self, draw: Callable[[], Any]) -> None:
        self._draw = draw

    def __len__(self) -> int:
        return 10

    def __getitem__(self, key: int) -> Any:
        return self._draw()


@pytest.mark.parametrize(
    "draw", [random.random, np.random.rand, lambda: torch.rand(1)], ids=["python", "numpy", "torch"]
)
def test_a_dataset_that_draws_gets_processes_and_the_generators_are_left_as_they_were(draw: Callable[[], Any]) -> None:
    before = random.getstate(), str(np.random.get_state()), torch.get_rng_state()
    assert auto.choose(DataLoader(Draws(draw), num_workers="auto")) == "multiprocessing"  # type: ignore[arg-type]
    assert random.getstate() == before[0]
    assert str(np.random.get_state()) == before[1]
    assert torch.equal(torch.get_rng_state(), before[2])


def refuses(_: int) -> int:
    raise ValueError("a bad sample")


class Stream(IterableDataset[int]):
    """Nothing to take a sample from."""

    def __iter__(self) -> Iterator[int]:
        return iter(())


@pytest.mark.parametrize(
    "dataset,more",
    [
        (Draws(lambda: refuses(0)), {}),
        (Stream(), {}),
        ([1, 2], {"worker_init_fn": print}),
        ([1, 2], {"seeding": "sample"}),
        ([1, 2], {"multiprocessing_context": "spawn"}),
        ({"a": 1}, {"sampler": ["a"]}),
    ],
)
def test_what_threads_cannot_do_is_not_measured(dataset: Any, more: dict[str, Any]) -> None:
    assert auto.choose(DataLoader(dataset, num_workers="auto", **more)) == "multiprocessing"
