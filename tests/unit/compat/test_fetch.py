"""Fetching a batch: torch's fetchers side by side, and what ours adds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data._utils import fetch as torch_fetch

from stoker.compat.crew import Job, Seeding, Task
from stoker.compat.fetch import EndOfDataError, fetcher_of
from stoker.compat.shortened import shortened
from stoker.errors import StateError


def _job(
    *, is_iterable: bool = False, auto_collation: bool = True, drop_last: bool = False, seeding: Seeding = "worker"
) -> Job:
    return Job(
        dataset=None,
        collate_fn=list,
        worker_init_fn=None,
        is_iterable=is_iterable,
        auto_collation=auto_collation,
        drop_last=drop_last,
        base_seed=5,
        seeding=seeding,
        num_workers=1,
    )


class _Squares:
    def __getitem__(self, key: Any) -> Any:
        if key == "stop":
            raise StopIteration("early")
        if not isinstance(key, int):
            raise KeyError(key)
        if key >= 100:
            raise IndexError(f"{key} is too much")
        return key * key


class _Batched(_Squares):
    def __getitems__(self, keys: list[int]) -> list[Any]:
        return [("batched", self[key]) for key in keys]


class _Numbers:
    def __init__(self, count: int, fails_at: int = -1) -> None:
        self.count = count
        self.fails_at = fails_at

    def __iter__(self) -> Iterator[int]:
        for number in range(self.count):
            if number == self.fails_at:
                raise ValueError("broken")
            yield number


class _StatefulNumbers:
    """Itself the iterator, with a state."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.at = 0
        self.num_read = 0

    def __iter__(self) -> _StatefulNumbers:
        return self

    def __next__(self) -> int:
        if self.at >= self.count:
            raise StopIteration
        self.at += 1
        self.num_read += 1
        return self.at - 1

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class _DatasetWithState(_Numbers):
    """The dataset has the state; its iterator is a generator."""

    start = 0

    def __iter__(self) -> Iterator[int]:
        first, self.start = self.start, 0
        for number in range(first, self.count):
            self.now = number + 1
            yield number

    def state_dict(self) -> dict[str, int]:
        return {"now": self.now}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.start = state["now"]


@pytest.mark.parametrize("dataset", [_Squares(), _Batched()])
def test_map_datasets_give_what_torch_gives(dataset: Any) -> None:
    for auto_collation, keys in ((True, [3, 1, 2]), (True, []), (False, 4), (True, (5, 6))):
        theirs = torch_fetch._MapDatasetFetcher(dataset, auto_collation, list if auto_collation else str, False)
        ours = fetcher_of(_job(auto_collation=auto_collation), dataset, list if auto_collation else str)
        assert ours.fetch(Task(0, keys)) == theirs.fetch(keys)  # type: ignore[no-untyped-call]
        assert ours.state() is None


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("auto_collation", [False, True])
@pytest.mark.parametrize("count", [0, 1, 5, 6])
def test_iterable_datasets_give_what_torch_gives(count: int, auto_collation: bool, drop_last: bool) -> None:
    keys: Any = [None] * 3 if auto_collation else None
    collate: Any = list if auto_collation else str
    theirs = torch_fetch._IterableDatasetFetcher(_Numbers(count), auto_collation, collate, drop_last)
    ours = fetcher_of(
        _job(is_iterable=True, auto_collation=auto_collation, drop_last=drop_last), _Numbers(count), collate
    )
    for batch_index in range(count + 2):
        try:
            expected = theirs.fetch(keys)  # type: ignore[no-untyped-call]
        except StopIteration:
            with pytest.raises(EndOfDataError):
                ours.fetch(Task(batch_index, keys))
        else:
            assert ours.fetch(Task(batch_index, keys)) == expected


def test_an_error_keeps_type_and_args_and_notes_the_sample() -> None:
    with pytest.raises(KeyError) as caught:
        fetcher_of(_job(), _Squares(), list).fetch(Task(7, [1, "x", 2]))
    assert caught.value.args == ("x",)
    assert caught.value.__notes__ == ["sample index 'x' (row 1 of batch 7)"]


def test_an_error_of_getitems_or_collate_notes_the_batch() -> None:
    def refuse(samples: list[Any]) -> None:
        raise ValueError(f"{len(samples)} samples")

    with pytest.raises(IndexError) as caught:
        fetcher_of(_job(), _Batched(), list).fetch(Task(7, [1, 100]))
    assert caught.value.__notes__ == ["fetching batch 7: sample indices 1, 100"]
    with pytest.raises(ValueError, match="20 samples") as other:
        fetcher_of(_job(), _Squares(), refuse).fetch(Task(8, list(range(20))))
    assert other.value.__notes__ == ["collating batch 8: sample indices 0, 1, 2, 3, 4, 5, 6, 7, … (20 in all)"]


def test_an_error_of_an_iterator_notes_how_far_it_was() -> None:
    fetcher = fetcher_of(_job(is_iterable=True), _Numbers(10, fails_at=4), list)
    fetcher.fetch(Task(0, [None] * 3))
    with pytest.raises(ValueError, match="broken") as caught:
        fetcher.fetch(Task(1, [None] * 3))
    assert caught.value.__notes__ == ["sample 4 of this iterator (row 1 of batch 1)"]


def test_an_error_of_collate_over_an_iterator_notes_which_samples() -> None:
    def refuse(samples: list[int]) -> list[int]:
        if 4 in samples:
            raise ValueError("four")
        return samples

    fetcher = fetcher_of(_job(is_iterable=True), _Numbers(10), refuse)
    fetcher.fetch(Task(0, [None] * 3))
    with pytest.raises(ValueError, match="four") as caught:
        fetcher.fetch(Task(1, [None] * 3))
    assert caught.value.__notes__ == ["collating samples 3 to 5 of this iterator"]


def _stops(_: Any) -> Any:
    return next(iter(()))


@pytest.mark.parametrize(
    "dataset, collate, is_iterable",
    [(_Squares(), _stops, False), (_Numbers(4), _stops, True)],
)
def test_stop_iteration_of_collate_is_no_end(dataset: Any, collate: Any, is_iterable: bool) -> None:
    with pytest.raises(RuntimeError, match="collate_fn raised StopIteration") as caught:
        fetcher_of(_job(is_iterable=is_iterable), dataset, collate).fetch(Task(2, [1, 2]))
    assert isinstance(caught.value.__cause__, StopIteration)


def test_stop_iteration_of_getitem_is_no_end() -> None:
    with pytest.raises(RuntimeError, match="__getitem__ raised StopIteration: early") as caught:
        fetcher_of(_job(), _Squares(), list).fetch(Task(2, [1, "stop"]))
    assert caught.value.__notes__ == ["sample index 'stop' (row 1 of batch 2)"]
    with pytest.raises(RuntimeError, match="__getitems__ raised StopIteration: early"):
        fetcher_of(_job(), _Batched(), list).fetch(Task(2, ["stop"]))


@pytest.mark.parametrize("make", [_StatefulNumbers, _DatasetWithState, _Numbers])
@pytest.mark.parametrize("num_before", [0, 1, 2, 3, 4, 5])
def test_an_iterable_dataset_goes_on_from_its_state(make: Any, num_before: int) -> None:
    job, keys = _job(is_iterable=True), [None] * 3
    whole = fetcher_of(job, make(11), list)
    state: Any = None
    for batch_index in range(num_before):
        try:
            whole.fetch(Task(batch_index, keys))
        except EndOfDataError:
            break
        state = whole.state()
    again = fetcher_of(job, make(11), list, state)
    for batch_index in range(6):
        rest = []
        for fetcher in (whole, again):
            try:
                rest.append(fetcher.fetch(Task(batch_index, keys)))
            except EndOfDataError:
                rest.append("end")
        assert rest[0] == rest[1]


def test_a_state_is_loaded_without_reading_again() -> None:
    job, keys = _job(is_iterable=True), [None] * 3
    first = fetcher_of(job, _StatefulNumbers(9), list)
    first.fetch(Task(0, keys))
    dataset = _StatefulNumbers(9)
    assert fetcher_of(job, dataset, list, first.state()).fetch(Task(1, keys)) == [3, 4, 5]
    assert dataset.num_read == 3


def test_a_state_of_another_dataset_is_refused() -> None:
    fetcher = fetcher_of(_job(is_iterable=True), _StatefulNumbers(9), list)
    with pytest.raises(StateError, match="load_state_dict"):
        fetcher_of(_job(is_iterable=True), _Numbers(9), list, fetcher.state())


class _Draws:
    def __getitem__(self, key: int) -> tuple[float, int, float]:
        return random.random(), int(np.random.randint(1 << 30)), torch.rand(()).item()

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self[0]


class _DrawsBatched(_Draws):
    def __getitems__(self, keys: list[int]) -> list[Any]:
        return [self[key] for key in keys]


@pytest.mark.parametrize(
    "dataset, is_iterable, auto_collation",
    [(_Draws(), False, True), (_Draws(), True, True), (_DrawsBatched(), False, True), (_Draws(), False, False)],
)
def test_seeding_by_sample_does_not_depend_on_what_was_drawn_before(
    dataset: Any, is_iterable: bool, auto_collation: bool
) -> None:
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        job = _job(is_iterable=is_iterable, auto_collation=auto_collation, seeding="sample")
        keys: Any = [0, 1, 2] if auto_collation else 0
        first = fetcher_of(job, dataset, lambda samples: (samples, random.random()))
        batches = [first.fetch(Task(batch_index, keys)) for batch_index in range(3)]
        second = fetcher_of(job, dataset, lambda samples: (samples, random.random()))
        random.random()
        assert second.fetch(Task(2, keys)) == batches[2]
        assert second.fetch(Task(0, keys)) == batches[0]
        rows = [row for samples, _ in batches for row in (samples if auto_collation else [samples])]
        assert len(set(rows)) == len(rows)
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


def test_keys_are_shown_shortened() -> None:
    assert shortened([1, 2]) == "1, 2"
    assert shortened("x" * 1000).startswith("'xxx")
    assert len(shortened(["x" * 1000] * 1000)) < 500
