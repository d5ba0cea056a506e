"""What a loader of a torch dataset saves, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

from stoker.compat.state import WorkerStates, from_state, to_state
from stoker.errors import StateError

POSITION = {"begun": True, "num_taken": 3, "iter": {}, "pull": {}}


class Stream(IterableDataset[int]):
    """Gives nothing; only its kind matters."""

    def __iter__(self) -> Iterator[int]:
        return iter(())


def loader(num_samples: int = 10, **arguments: Any) -> DataLoader[Any]:
    return DataLoader(range(num_samples), **{"batch_size": 2, **arguments})  # type: ignore[arg-type]


def distributed(world_size: int = 2, **options: Any) -> DistributedSampler[Any]:
    return DistributedSampler(range(10), num_replicas=world_size, **{"rank": 0, **options})  # type: ignore[arg-type]


def test_a_state_comes_back_through_json() -> None:
    state = json.loads(json.dumps(to_state(loader(), POSITION, 2**63 - 1)))
    saved = from_state(loader(), state)
    assert saved is not None
    assert (saved.position, saved.base_seed, saved.workers) == (POSITION, 2**63 - 1, None)


@pytest.mark.parametrize(
    "other",
    [
        {"num_workers": 2},
        {"num_workers": 1, "prefetch_factor": 7, "persistent_workers": True},
        {"timeout": 0, "pin_memory": False, "in_order": False},
        {"collate_fn": list},
        {"generator": torch.Generator()},
    ],
    ids=" ".join,  # of the arguments' names
)
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_what_does_not_change_the_batches_may_differ(other: dict[str, Any]) -> None:
    assert from_state(loader(**other), to_state(loader(), POSITION, 1)) is not None


@pytest.mark.parametrize(
    "before, now, text",
    [
        ({}, {"num_samples": 11}, "dataset_length was 10, is 11"),
        ({}, {"batch_size": 3}, "batch_size was 2, is 3"),
        ({}, {"batch_size": None}, "batch_size was 2, is None"),
        ({}, {"drop_last": True}, "drop_last was False, is True"),
        ({}, {"shuffle": True}, r"sampler was 'SequentialSampler\(\)', is 'RandomSampler\(replacement=False"),
        (
            {"sampler": RandomSampler(range(10))},
            {"sampler": RandomSampler(range(10), replacement=True)},
            r"is 'RandomSampler\(replacement=True, num_samples=10\)'",
        ),
        (
            {"sampler": WeightedRandomSampler([1.0] * 10, 4)},
            {"sampler": WeightedRandomSampler([1.0] * 10, 6)},
            "num_samples=4.*num_samples=6",
        ),
        ({"sampler": distributed(2)}, {"sampler": distributed(3)}, "num_replicas=2.*num_replicas=3"),
        ({"sampler": distributed(seed=1)}, {"sampler": distributed(seed=2)}, "seed=1.*seed=2"),
        ({"sampler": distributed()}, {"sampler": distributed(shuffle=False)}, "shuffle=True.*shuffle=False"),
    ],
)
def test_a_loader_of_other_batches_is_refused_and_told_what_differs(
    before: dict[str, Any], now: dict[str, Any], text: str
) -> None:
    with pytest.raises(StateError, match=f"(?s){text}.*Make the loader as it was"):
        from_state(loader(**now), to_state(loader(**before), POSITION, 1))


def test_the_state_of_one_rank_fits_all_since_some_trainers_keep_only_that() -> None:
    state = to_state(loader(sampler=distributed(rank=0)), POSITION, 1)
    assert from_state(loader(sampler=distributed(rank=1)), state) is not None


@pytest.mark.parametrize(
    "wrong", [{"kind": "stoker.DataLoader", "version": 1}, {"_snapshot": {}, "_steps_since_snapshot": 0}], ids=str
)
def test_a_state_of_another_kind_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(StateError, match=r"expected a state of kind .* Load what this loader's state_dict\(\) gave"):
        from_state(loader(), wrong)


def test_a_state_of_another_version_is_refused() -> None:
    with pytest.raises(StateError, match=r"version 1; found kind .*, version 2"):
        from_state(loader(), {**to_state(loader(), POSITION, 1), "version": 2})


def test_an_empty_state_means_from_the_beginning() -> None:
    assert from_state(loader(), {}) is None


def test_a_key_that_a_trainer_adds_is_passed_over() -> None:
    state = {**to_state(loader(), POSITION, 1), "_iterator_finished": False}
    assert from_state(loader(), state) is not None


# -- iterable datasets ------------------------------------------------------------------------------------------------


def test_the_states_of_an_iterable_datasets_workers_stay_as_they_are() -> None:
    of_user = object()
    workers = WorkerStates((of_user, None), (False, True), 1, 5)
    stream = DataLoader(Stream(), num_workers=2)
    saved = from_state(stream, to_state(stream, POSITION, 1, workers))
    assert saved is not None
    assert saved.workers == workers
    assert saved.workers.states[0] is of_user


def test_an_iterable_dataset_whose_workers_all_ended_begins_its_next_epoch() -> None:
    stream = DataLoader(Stream(), num_workers=2)
    saved = from_state(stream, to_state(stream, POSITION, 1, WorkerStates((1, 2), (True, True), 0, 5)))
    assert saved is not None
    assert saved.workers is None
    assert saved.position["finished"]


def test_an_iterable_dataset_needs_as_many_workers() -> None:
    state = to_state(DataLoader(Stream(), num_workers=2), POSITION, 1, WorkerStates((1, 2), (False, False), 0, 5))
    with pytest.raises(StateError, match="num_workers was 2, is 1"):
        from_state(DataLoader(Stream(), num_workers=1), state)
