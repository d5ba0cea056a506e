"""What a resumed loader of a torch dataset gives is what an uninterrupted one would have given."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from stoker.compat import loader as stoker_loader
from support.resumable import ResumableLoader
from support.samplers import KINDS, Kind, seeded

pytestmark = pytest.mark.usefixtures("generators_of_the_process")
LIMIT_BYTES = 4096


class Numbers(Dataset[int]):
    """Sample ``i`` is ``i``; remembers which were fetched."""

    def __init__(self, num_samples: int) -> None:
        self.num_samples = num_samples
        self.fetched: list[int] = []

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> int:
        self.fetched.append(index)
        return index


@pytest.fixture
def generators_of_the_process() -> Iterator[None]:
    """A test's draws are its own."""
    kept = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    yield
    torch.set_rng_state(kept[0])
    random.setstate(kept[1])
    np.random.set_state(kept[2])  # noqa: NPY002


def seed_process(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002


def keep(batch: Any) -> Any:
    return batch


@dataclass(frozen=True)
class Way:
    """A loader, and how it is used: how far it pulls ahead, how often torch's code asks for an iterator."""

    name: str
    cls: Any
    options: dict[str, Any] = field(default_factory=dict)
    ahead: int = 0
    iters: int = 1

    def __repr__(self) -> str:
        return self.name

    def loader(self, kind: Kind, num: int, batch: int, drop: bool) -> Any:
        loader = self.cls(Numbers(num), collate_fn=keep, **self.options, **kind.arguments(num, batch, drop))
        loader.ahead, loader.iters = self.ahead, self.iters
        return loader

    @property
    def has_pulled(self) -> bool:
        """Whether indices are pulled before the first batch is wanted."""
        return self.ahead > 0 or bool(self.options)


THREADS = {"num_workers": 2, "worker_method": "thread", "prefetch_factor": 1}
WAYS = (
    Way("torch's", ResumableLoader),
    Way("torch's, ahead", ResumableLoader, ahead=3, iters=2),
    Way("stoker's", stoker_loader.DataLoader),
    Way("stoker's threads", stoker_loader.DataLoader, THREADS),
)


def begin_epoch(loader: Any, epoch: int) -> Any:
    if hasattr(loader.sampler, "set_epoch"):
        loader.sampler.set_epoch(epoch)
    return iter(loader)


def epochs_of(loader: Any, count: int) -> list[list[Any]]:
    return [list(begin_epoch(loader, epoch)) for epoch in range(count)]


def saved_at(loader: Any, epoch: int, num_taken: int) -> str:
    """The state after ``num_taken`` batches of an epoch, as JSON."""
    for before in range(epoch):
        list(begin_epoch(loader, before))
    running = begin_epoch(loader, epoch)
    list(islice(running, num_taken))
    return json.dumps(loader.state_dict())


@pytest.mark.parametrize("way", WAYS, ids=repr)
@pytest.mark.parametrize("kind", KINDS, ids=repr)
@settings(max_examples=8, deadline=None)
@given(
    num=st.integers(4, 17),
    batch=st.integers(1, 4),
    drop=st.booleans(),
    epoch=st.integers(0, 2),
    at=st.integers(0, 60),
    seed=st.integers(0, 2**31),
)
def test_consumed_and_resumed_are_the_uninterrupted(
    kind: Kind, way: Way, num: int, batch: int, drop: bool, epoch: int, at: int, seed: int
) -> None:
    seed_process(seed)
    whole = epochs_of(way.loader(kind, num, batch, drop), epoch + 3)
    num_taken = at % (len(whole[epoch]) + 1)
    assume(num_taken or way.has_pulled or not kind.draws_late)
    seed_process(seed)
    state = saved_at(way.loader(kind, num, batch, drop), epoch, num_taken)
    assert len(state) < LIMIT_BYTES or kind.is_large

    seed_process(seed + 1)
    resumed = way.loader(kind, num, batch, drop)
    resumed.load_state_dict(json.loads(state))
    if num_taken < len(whole[epoch]):
        rest = list(begin_epoch(resumed, epoch))
        assert rest == whole[epoch][num_taken:]
        assert sorted(resumed.dataset.fetched) == sorted(flat(rest)), "fetched what had been consumed"
        assert resumed.state_dict()["base_seed"] == json.loads(state)["base_seed"]
    following = [list(begin_epoch(resumed, epoch + 1)), list(begin_epoch(resumed, epoch + 2))]
    if kind.repeats:
        assert following == whole[epoch + 1 :]
    assert [len(given) for given in following] == [len(given) for given in whole[epoch + 1 :]]


@pytest.mark.parametrize("way", WAYS, ids=repr)
@settings(max_examples=10, deadline=None)
@given(
    kind=st.sampled_from(KINDS), cuts=st.lists(st.integers(0, 3), min_size=1, max_size=8), seed=st.integers(0, 2**31)
)
def test_any_number_of_interruptions_makes_no_difference(way: Way, kind: Kind, cuts: list[int], seed: int) -> None:
    cuts = [max(cut, 1) for cut in cuts] if kind.draws_late else cuts
    seed_process(seed)
    whole = [batch for epoch in epochs_of(way.loader(kind, 9, 2, False), 10) for batch in epoch]
    per_epoch = len(whole) // 10
    seed_process(seed)
    taken: list[Any] = []
    state = None
    for interruption, cut in enumerate(cuts):
        loader = way.loader(kind, 9, 2, False)
        if state is not None:
            seed_process(seed + interruption)
            loader.load_state_dict(json.loads(state))
        taken += list(islice(begin_epoch(loader, len(taken) // per_epoch), cut))
        state = json.dumps(loader.state_dict())
    if kind.repeats:
        assert taken == whole[: len(taken)]


def flat(batches: Any) -> Iterator[int]:
    for batch in batches:
        yield from batch if isinstance(batch, list) else [batch]


# -- another process --------------------------------------------------------------------------------------------------

REST = """
import json, sys
from support.resumable import ResumableLoader
from support.samplers import KINDS

given = {}
states = json.load(sys.stdin)
for kind in KINDS:
    loader = ResumableLoader(range(23), collate_fn=lambda batch: batch, **kind.arguments(23, 2, False))
    loader.load_state_dict(states[kind.name])
    if hasattr(loader.sampler, "set_epoch"):
        loader.sampler.set_epoch(1)
    given[kind.name] = list(loader)
json.dump(given, sys.stdout)
"""


def test_a_fresh_process_goes_on_with_each_kind() -> None:
    states, expected = {}, {}
    for kind in KINDS:
        loader = WAYS[1].loader(kind, 23, 2, False)
        list(begin_epoch(loader, 0))
        running = begin_epoch(loader, 1)
        list(islice(running, 2))
        states[kind.name] = loader.state_dict()
        expected[kind.name] = list(running)
    program = subprocess.run(
        [sys.executable, "-c", REST],
        input=json.dumps(states),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert program.returncode == 0, program.stderr
    assert json.loads(program.stdout) == expected


# -- iterable datasets ------------------------------------------------------------------------------------------------


class Counting(IterableDataset[int]):
    """Numbers dealt out to the workers; ``keeps_state`` tells whether it can say where it is."""

    def __init__(self, num_samples: int) -> None:
        self.num_samples = num_samples

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        yield from range(info.id, self.num_samples, info.num_workers) if info else range(self.num_samples)


class CountingWithState(Counting):
    """Says where it is, and goes on from there."""

    def __init__(self, num_samples: int) -> None:
        super().__init__(num_samples)
        self.num_given = 0

    def __iter__(self) -> Iterator[int]:
        for number in islice(super().__iter__(), self.num_given, None):
            self.num_given += 1
            yield number
        self.num_given = 0

    def state_dict(self) -> dict[str, int]:
        return {"num_given": self.num_given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.num_given = state["num_given"]


def iterable_loader(cls: Any, num: int, batch: int, num_workers: int) -> Any:
    dataset = cls(num)
    return stoker_loader.DataLoader(dataset, batch, num_workers=num_workers, collate_fn=keep, generator=seeded())


@pytest.mark.parametrize("cls", [Counting, CountingWithState])
@settings(max_examples=30, deadline=None)
@given(num=st.integers(1, 12), batch=st.integers(1, 4), at=st.integers(0, 12))
def test_an_iterable_dataset_goes_on_where_it_was(cls: Any, num: int, batch: int, at: int) -> None:
    check_iterable(cls, num, batch, 0, at)


@pytest.mark.parametrize("cls, at", [(Counting, 3), (CountingWithState, 1), (CountingWithState, 4)])
def test_an_iterable_dataset_in_two_workers_goes_on_where_it_was(cls: Any, at: int) -> None:
    check_iterable(cls, 11, 2, 2, at)


def check_iterable(cls: Any, num: int, batch: int, num_workers: int, at: int) -> None:
    with iterable_loader(cls, num, batch, num_workers) as loader:
        whole = list(loader)
    at %= len(whole)
    with iterable_loader(cls, num, batch, num_workers) as loader:
        running = iter(loader)
        assert list(islice(running, at)) == whole[:at]
        state = json.dumps(loader.state_dict())
        rest = list(running)
        over = json.dumps(loader.state_dict())
    with iterable_loader(cls, num, batch, num_workers) as loader:
        loader.load_state_dict(json.loads(state))
        assert list(loader) == rest == whole[at:]
        assert list(loader) == whole
        loader.load_state_dict(json.loads(over))
        assert list(loader) == whole, "the state of an epoch's end begins the next"
