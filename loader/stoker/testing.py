"""The laws a loader keeps, for use in the tests of those who build on it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from stoker.dataloader import DataLoader

MakeLoader = Callable[[int, int], DataLoader]
"""Makes the loader of a rank of a world: ``make(rank, world_size)``."""


def keys_of(batches: Iterable[dict[str, Any]]) -> list[str]:
    """The keys of all rows that are samples of their own, in order: filler and replaced rows are left out."""
    found: list[str] = []
    for batch in batches:
        keys = batch["__key__"]
        mask = np.asarray(batch["__mask__"]) if "__mask__" in batch else np.ones(len(keys), np.bool_)
        found.extend(key for key, own in zip(keys, mask, strict=True) if own)
    return found


def assert_exactly_once(make: MakeLoader, world_size: int, keys: Iterable[str], *, epoch: int = 0) -> None:
    """Over all ranks, an epoch gives each of ``keys`` once, in equally many steps per rank, as many as ``len`` says."""
    found: list[str] = []
    steps: list[int] = []
    for rank in range(world_size):
        with make(rank, world_size) as loader:
            loader.set_epoch(epoch)
            batches = list(loader)
            assert len(batches) == len(loader), f"rank {rank}: len is {len(loader)}, iterating gave {len(batches)}"
            steps.append(len(batches))
            found.extend(keys_of(batches))
    assert len(set(steps)) <= 1, f"ranks have different numbers of steps: {steps}"
    wrong = Counter(found)
    wrong.subtract(keys)
    wrong = Counter({key: count for key, count in wrong.items() if count})
    assert not wrong, f"keys that came too often (> 0) or were missing (< 0): {wrong.most_common(10)}"


def assert_resumable(make: MakeLoader, *, steps: Iterable[int], epoch: int = 0) -> None:
    """After each of ``steps``, a new loader given the saved state gives the rest, equal to the last byte."""
    with make(0, 1) as loader:
        loader.set_epoch(epoch)
        whole = list(loader)
    for step in steps:
        state = _state_after(make, step, epoch=epoch)
        assert len(json.dumps(state)) < 4096, f"the state after step {step} is {len(json.dumps(state))} bytes"
        with make(0, 1) as loader:
            loader.load_state_dict(state)
            loader.set_epoch(epoch)
            assert_equal_batches(list(loader), whole[step:])


def assert_equal_batches(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Two lists of batches are equal: the same columns, types, shapes and values."""
    assert len(found) == len(expected), f"expected {len(expected)} batches, found {len(found)}"
    for index, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert one.keys() == other.keys(), f"batch {index}: columns {sorted(one)} and {sorted(other)}"
        for name in one:
            np.testing.assert_equal(_comparable(one[name]), _comparable(other[name]), f"batch {index}: {name}")


def _state_after(make: MakeLoader, step: int, *, epoch: int) -> dict[str, Any]:
    with make(0, 1) as loader:
        loader.set_epoch(epoch)
        for _ in zip(range(step), loader, strict=False):
            pass
        state: dict[str, Any] = json.loads(json.dumps(loader.state_dict()))
        return state


def _comparable(column: Any) -> Any:
    return column if isinstance(column, list | dict) else np.asarray(column)
