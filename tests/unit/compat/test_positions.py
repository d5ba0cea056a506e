"""Where an iteration over a sampler is."""

from __future__ import annotations

import json
import random
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, Sampler, SequentialSampler
from torch.utils.data.dataloader import _InfiniteConstantSampler
from torch.utils.data.distributed import DistributedSampler

from stoker.compat import sources
from stoker.compat.positions import TrackedSampler, prepare
from stoker.errors import StateError, StokerWarning
from support.samplers import AtOnce, seeded


def batched(sampler: Any, batch_size: int = 2) -> BatchSampler:
    return BatchSampler(sampler, batch_size, False)


def consumed(index_sampler: Any, num_taken: int, generator: torch.Generator | None = None) -> dict[str, Any]:
    """The position after ``num_taken`` batches, through JSON."""
    tracked = TrackedSampler(index_sampler, generator)
    list(islice(tracked, num_taken))
    for number in range(num_taken):
        tracked.taken(number)
    position: dict[str, Any] = json.loads(json.dumps(tracked.position()))
    return position


def test_a_row_in_order_begins_at_an_offset_without_touching_what_came_before() -> None:
    huge = SequentialSampler(range(10**15))
    position = {**consumed(batched(huge), 0), "num_taken": 10**14}
    assert next(iter(TrackedSampler(batched(huge), None, position))) == [2 * 10**14, 2 * 10**14 + 1]


def test_batches_handed_out_of_order_come_neither_again_nor_never() -> None:
    tracked = TrackedSampler(batched(SequentialSampler(range(14))), None)
    list(islice(tracked, 6))
    for number in (2, 0, 5):
        tracked.taken(number)
    position = tracked.position()
    assert (position["num_taken"], position["ahead"]) == (1, [2, 5])
    resumed = TrackedSampler(batched(SequentialSampler(range(14))), None, position)
    assert list(resumed) == [[2, 3], [6, 7], [8, 9], [12, 13]]
    assert [resumed.index_of(number) for number in range(4)] == [1, 3, 4, 6]
    resumed.taken(0)
    assert (resumed.position()["num_taken"], resumed.position()["ahead"]) == (3, [5])


def test_what_is_pulled_but_not_handed_out_comes_again() -> None:
    tracked = TrackedSampler(batched(RandomSampler(range(10))), None)
    pulled = list(tracked)
    tracked.taken(0)
    assert list(TrackedSampler(batched(RandomSampler(range(10))), None, tracked.position())) == pulled[1:]


def test_a_position_is_shared_with_nobody() -> None:
    tracked = TrackedSampler(batched(RandomSampler(range(10), generator=seeded())), None)
    next(iter(tracked))
    tracked.position()["pull"].clear()
    assert tracked.position()["pull"]


def test_a_position_taken_before_it_was_gone_on_from_is_the_same() -> None:
    position = consumed(batched(RandomSampler(range(10))), 2)
    assert TrackedSampler(batched(RandomSampler(range(10))), None, position).position() == position
    tracked = TrackedSampler(batched(RandomSampler(range(10))), None, position)
    iter(tracked)
    assert tracked.position() == position


def test_one_that_never_began_keeps_the_state_of_the_loaders_generator() -> None:
    generator = seeded()
    torch.rand(3, generator=generator)
    position = json.loads(json.dumps(TrackedSampler(batched(range(4)), generator).position()))
    other = torch.Generator()
    tracked = TrackedSampler(batched(range(4)), other, position)
    assert list(tracked) == [[0, 1], [2, 3]]
    assert not tracked.resumed
    assert torch.equal(other.get_state(), generator.get_state())


def test_peeking_at_a_seed_and_resuming_leave_torchs_generator_where_a_start_leaves_it() -> None:
    torch.manual_seed(5)
    list(batched(RandomSampler(range(10))))
    expected = torch.get_rng_state()
    torch.manual_seed(5)
    position = consumed(batched(RandomSampler(range(10))), 2)
    assert torch.equal(torch.get_rng_state(), expected)
    assert "torch" not in position["pull"], "a seed is enough"
    torch.manual_seed(5)
    list(TrackedSampler(batched(RandomSampler(range(10))), None, position))
    assert torch.equal(torch.get_rng_state(), expected)


# -- epochs -----------------------------------------------------------------------------------------------------------


def distributed(epoch: int) -> DistributedSampler[Any]:
    sampler: DistributedSampler[Any] = DistributedSampler(range(12), num_replicas=2, rank=1)  # type: ignore[arg-type]
    sampler.set_epoch(epoch)
    return sampler


def test_the_epoch_of_a_sampler_comes_back_with_the_position() -> None:
    position, fresh = consumed(batched(distributed(4)), 1), distributed(0)
    prepare(batched(fresh), position)
    assert fresh.epoch == 4
    assert list(TrackedSampler(batched(fresh), None, position)) == list(batched(distributed(4)))[1:]


def test_another_epoch_set_after_loading_is_an_error_that_says_which_was_saved() -> None:
    position, fresh = consumed(batched(distributed(4)), 1), distributed(0)
    prepare(batched(fresh), position)
    fresh.set_epoch(5)
    with pytest.raises(StateError, match=r"of epoch 4, after 1 batches of it; .* set to 5 .* Call set_epoch\(4\)"):
        iter(TrackedSampler(batched(fresh), None, position))


def test_another_epoch_is_right_when_the_saved_one_was_consumed() -> None:
    position, fresh = consumed(batched(distributed(4)), 3), distributed(0)
    prepare(batched(fresh), position)
    fresh.set_epoch(5)
    tracked = TrackedSampler(batched(fresh), None, position)
    assert list(tracked) == list(batched(distributed(5)))
    assert not tracked.resumed


# -- samplers that are not known ---------------------------------------------------------------------------------------


class Fickle(Sampler[int]):
    """Gives another order whenever it is asked; from no generator that anybody can find."""

    def __init__(self) -> None:
        self.generator = random.SystemRandom()

    def __iter__(self) -> Any:
        return iter(self.generator.sample(range(10**9), 8))


def test_a_sampler_that_cannot_be_repeated_is_warned_of() -> None:
    position = consumed(batched(Fickle()), 1)
    with pytest.warns(
        StokerWarning, match=r"Fickle began the saved epoch with other indices .* Give the sampler state_dict"
    ):
        assert len(list(TrackedSampler(batched(Fickle()), None, position))) == 3


def test_only_those_generators_of_the_process_are_kept_that_the_start_drew_from() -> None:
    assert set(consumed(batched(AtOnce(8, None)), 1)["pull"]) == {"python"}
    assert set(consumed(batched([3, 1, 2]), 1)["pull"]) == set()


def test_a_sampler_that_lost_its_state_is_named() -> None:
    class Stateful(Sampler[int]):
        def __iter__(self) -> Any:
            return iter(range(4))

        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            """Nothing to load."""

    class Other(Sampler[int]):
        def __iter__(self) -> Any:
            return iter(range(4))

    with pytest.raises(StateError, match=r"Other has no load_state_dict\(\)"):
        iter(TrackedSampler(Other(), None, consumed(Stateful(), 1)))


class Outer(Sampler[int]):
    """Holds samplers and generators in every way that is looked into."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)
        self.base_sampler = AtOnce(3, random.Random(1))
        self.several = [AtOnce(3, np.random.RandomState(1)), "text", 3]  # one of those that are found
        self.wrapped = type("Wrapper", (), {})()
        self.wrapped._sampler = AtOnce(3, seeded())
        self.dataset = [torch.Generator()] * 3
        self.me = self
        self.epoch = 2

    def __iter__(self) -> Any:
        return iter(())


def test_generators_and_epochs_are_found_wherever_samplers_have_them() -> None:
    own = seeded()
    found = sources.own(batched(Outer()), own)
    assert list(found) == [
        "generator",
        "sampler.sampler.epoch",
        "sampler.sampler.base_sampler.rng",
        "sampler.sampler.rng",
        "sampler.sampler.several.0.rng",
        "sampler.sampler.wrapped._sampler.rng",
    ]


def test_torchs_default_generator_is_the_processs_not_the_loaders() -> None:
    assert sources.own(RandomSampler(range(3), generator=torch.default_generator), torch.default_generator) == {}


def test_an_iterable_datasets_sampler_has_only_a_count() -> None:
    tracked = TrackedSampler(batched(_InfiniteConstantSampler()), None)
    keys = iter(tracked)
    for number in (0, 1, 3, 4):  # 2 went to a worker whose data had ended
        next(keys)
        tracked.taken(number)
    assert tracked.position()["num_taken"] == 4
    resumed = TrackedSampler(batched(_InfiniteConstantSampler()), None, tracked.position())
    assert next(iter(resumed)) == [None, None]
    assert resumed.resumed
