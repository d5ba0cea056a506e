"""What must hold of merging, whatever the sizes, the lanes and the order in which batches come."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.plan import resume
from stoker.plan.resume import Position
from stoker.plan.steps import Steps, Tail
from stoker_service.client.merge import MAX_AHEAD, MAX_HELD, MAX_PER_LANE, Leg, Merge, Place, legs


@dataclass(frozen=True)
class Plan:
    """Epochs of so many samples, dealt to ``rank`` of ``world_size``; as :class:`stoker.engine.feed.Deal` does it."""

    num_samples: int
    batch_size: int
    num_lanes: int
    rank: int
    world_size: int
    tail: Tail

    def start(self, epoch: int) -> Position:
        return resume.start(epoch, self.num_samples, batch_size=self.batch_size, num_lanes=self.num_lanes)

    def steps(self, position: Position) -> Steps:
        return Steps(position.lanes, self.world_size, self.tail, first_batch=position.num_consumed)

    def num_left(self, position: Position) -> int:
        return self.steps(position).num_steps - len(position.ahead)

    def sequence(self, position: Position, num_epochs: int) -> list[Place]:
        """The rank's batches from a position on, batch by batch as the steps deal them."""
        found = []
        for _ in range(num_epochs):
            steps = self.steps(position)
            dealt = [steps.batch(step, self.rank).batch_index for step in range(steps.num_steps)]
            found += [Place(position.epoch, index) for index in dealt if index not in position.ahead]
            position = self.start(position.epoch + 1)
        return found

    def legs(self, position: Position) -> list[Leg]:
        return list(islice(legs(self, self.rank, position), 3))

    def merge(self, position: Position, prefetch_bytes: int, *, in_order: bool) -> Merge:
        """Of two epochs."""
        return Merge(islice(legs(self, self.rank, position), 2), prefetch_bytes=prefetch_bytes, in_order=in_order)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    world_size = draw(st.integers(1, 6))
    tails: list[Tail] = ["drop", "pad", "repeat"]
    return Plan(
        num_samples=draw(st.integers(1, 600)),
        batch_size=draw(st.integers(1, 6)),
        num_lanes=draw(st.integers(1, 9)),
        rank=draw(st.integers(0, world_size - 1)),
        world_size=world_size,
        tail=draw(st.sampled_from(tails)),
    )


@st.composite
def positions(draw: st.DrawFn, plan: Plan) -> Position:
    """A position in the middle of an epoch, some batches of the rank taken ahead."""
    steps = plan.steps(plan.start(0)).num_steps
    done = draw(st.integers(0, steps))
    position = replace(plan.start(0), num_consumed=done * plan.world_size)
    beyond = range(1, min(MAX_AHEAD, steps - done))
    for step in draw(st.sets(st.sampled_from(beyond), max_size=8)) if beyond else ():
        batch_index = (done + step) * plan.world_size + plan.rank
        position = position.taken(batch_index, plan.rank, plan.world_size)
    return position


class Supply:
    """Asks, lets batches arrive in an order of its own, takes; checks the bounds on the way."""

    def __init__(self, merge: Merge, size_of: Callable[[Place], int], seed: int, *, lane_order: int = 0) -> None:
        self.merge = merge
        self.size_of = size_of
        self.chance = random.Random(seed)
        self.lane_order = lane_order  # lanes, if each of them is in order
        self.coming: list[Place] = []
        self.most_bytes = 0
        self.most_held = 0

    def run(self) -> list[Place]:
        """All that is handed out, until nothing is left. Fails where nothing can go on."""
        taken: list[Place] = []
        while True:
            self.coming += self.merge.ask()
            self.most_held = max(self.most_held, self.merge.num_held)
            if self.merge.num_held > 1:
                self.most_bytes = max(self.most_bytes, self.merge.held_bytes)
            wants_to_take = self.chance.random() < 0.5
            if wants_to_take and (place := self.merge.take()) is not None:
                taken.append(place)
            elif self.coming:
                self._arrive()
            elif (place := self.merge.take()) is not None:
                taken.append(place)
            else:
                assert self.merge.first_missing is None, "nothing is asked for, here, or can be handed out"
                return taken

    def _arrive(self) -> None:
        at = self.chance.randrange(len(self.coming))
        if self.lane_order:
            lane = (self.coming[at].epoch, self.coming[at].batch_index % self.lane_order)
            at = next(i for i, p in enumerate(self.coming) if (p.epoch, p.batch_index % self.lane_order) == lane)
        place = self.coming.pop(at)
        self.merge.begun(place, self.size_of(place))
        self.merge.arrived(place)


seeds = st.integers(0, 2**32)
budgets = st.integers(0, 2000)


@given(plans(), st.data(), budgets, seeds)
def test_in_order_gives_the_ranks_sequence_across_epochs(
    plan: Plan, data: st.DataObject, prefetch_bytes: int, seed: int
) -> None:
    position = data.draw(positions(plan))
    chance = random.Random(seed)
    merge = plan.merge(position, prefetch_bytes, in_order=True)
    found = Supply(merge, lambda _: chance.randint(1, 900), seed).run()
    expected = plan.sequence(position, 1 + len(plan.legs(position)))
    assert found == expected[: len(found)]
    assert len(found) == sum(leg.num_left for leg in plan.legs(position)[:2])


@given(plans(), st.data(), budgets, seeds)
def test_unordered_gives_each_once_and_never_too_far_ahead(
    plan: Plan, data: st.DataObject, prefetch_bytes: int, seed: int
) -> None:
    position = data.draw(positions(plan))
    chance = random.Random(seed)
    merge = plan.merge(position, prefetch_bytes, in_order=False)
    supply = Supply(merge, lambda _: chance.randint(1, 100), seed, lane_order=plan.num_lanes)
    found = supply.run()
    expected = [place for leg in plan.legs(position)[:2] for place in leg.places()]
    assert Counter(found) == Counter(expected)
    epochs = [place.epoch for place in found]
    assert epochs == sorted(epochs)
    for place in found:
        if place.epoch == position.epoch:
            position = position.taken(place.batch_index, plan.rank, plan.world_size)
            assert len(position.ahead) <= MAX_AHEAD


@given(plans(), budgets, st.integers(1, 900), st.booleans(), seeds)
def test_bytes_asked_for_stay_within_the_budget(
    plan: Plan, prefetch_bytes: int, size: int, in_order: bool, seed: int
) -> None:
    supply = Supply(plan.merge(plan.start(0), prefetch_bytes, in_order=in_order), lambda _: size, seed)
    supply.run()
    assert supply.most_bytes <= prefetch_bytes
    assert supply.most_held <= MAX_HELD


@given(plans(), st.integers(0, 3000), seeds)
def test_no_more_than_what_fits_is_asked_for_at_a_time_even_when_sizes_vary(
    plan: Plan, prefetch_bytes: int, seed: int
) -> None:
    chance = random.Random(seed)
    merge = plan.merge(plan.start(0), prefetch_bytes, in_order=True)
    coming: list[Place] = []
    largest = 0
    few = len(plan.sequence(plan.start(0), 2)) < 64  # so that the largest of all is what is guessed
    while merge.first_missing is not None:
        before = merge.held_bytes
        asked = merge.ask()
        assert before + largest * len(asked) <= prefetch_bytes or (not before and len(asked) <= 1)
        coming += asked
        place = coming.pop(0)
        merge.begun(place, size := chance.randint(1, 100))
        largest = max(largest, size) if few else 0
        merge.arrived(place)
        assert merge.take() == place


@given(plans(), st.data())
def test_the_stretches_of_a_leg_hold_each_batch_once(plan: Plan, data: st.DataObject) -> None:
    position = data.draw(positions(plan))
    for leg in plan.legs(position)[:1]:
        left = Counter(place.batch_index for place in leg.places())
        first = leg.first_stretches()
        assert {stretch.lane for stretch in first} == {index % leg.num_lanes for index in left}
        assert len(first) == len({stretch.lane for stretch in first})
        held: Counter[int] = Counter()
        for place in leg.places():
            if place.batch_index not in held:
                stretch = leg.stretch(place.batch_index)
                assert stretch.stride % plan.num_lanes == 0
                held.update(range(stretch.start, stretch.stop, stretch.stride))
        assert held == left


def plan_of(num_batches: int, *, num_lanes: int = 4, world_size: int = 1) -> Plan:
    return Plan(num_batches, 1, num_lanes, 0, world_size, "drop")


def arrive(merge: Merge, places: list[Place], size: int) -> None:
    for place in places:
        merge.begun(place, size)
        merge.arrived(place)


def test_before_any_size_is_known_one_batch_is_asked_for() -> None:
    merge = plan_of(100).merge(plan_of(100).start(0), 1 << 30, in_order=True)
    assert merge.ask() == [Place(0, 0)]
    merge.begun(Place(0, 0), 10)
    assert len(merge.ask()) == 4 * MAX_PER_LANE - 1  # told before the batch itself is here


def test_a_batch_larger_than_the_budget_is_asked_for_when_it_is_next() -> None:
    merge = plan_of(10).merge(plan_of(10).start(0), 100, in_order=True)
    for index in range(3):
        assert merge.ask() == [Place(0, index)]
        arrive(merge, [Place(0, index)], 1000)
        assert merge.ask() == []
        assert merge.take() == Place(0, index)


def test_the_next_epoch_is_opened_while_this_one_drains_and_not_the_one_after() -> None:
    plan = plan_of(40)
    merge = Merge(legs(plan, 0, plan.start(0)), prefetch_bytes=5, in_order=True)
    opened = [leg.epoch for leg in merge.legs_to_open()]
    seen = {}
    for index in range(40):
        arrive(merge, merge.ask(), 1)
        for leg in merge.legs_to_open():
            opened.append(leg.epoch)
            seen[leg.epoch] = index
        assert merge.take() == Place(0, index)
    assert opened == [0, 1]
    assert 20 <= seen[1] < 40


def test_tiny_epochs_ask_for_one_epoch_ahead_only() -> None:
    plan = plan_of(2, num_lanes=1)
    merge = Merge(legs(plan, 0, plan.start(0)), prefetch_bytes=1000, in_order=True)
    arrive(merge, merge.ask(), 1)
    assert merge.ask() == [Place(0, 1), Place(1, 0), Place(1, 1)]


def test_unordered_hands_out_what_is_here_but_not_of_the_next_epoch() -> None:
    plan = plan_of(4)
    merge = Merge(legs(plan, 0, plan.start(0)), prefetch_bytes=1000, in_order=False)
    assert merge.ask() == [Place(0, 0)]
    merge.begun(Place(0, 0), 1)
    others = merge.ask()
    assert others == [Place(0, 1), Place(0, 2), Place(0, 3), *(Place(1, index) for index in range(4))]
    arrive(merge, others, 1)
    assert [merge.take() for _ in range(3)] == others[:3]
    assert merge.take() is None  # those of the next epoch wait for the last of this one
    merge.arrived(Place(0, 0))
    assert [merge.take(), merge.take()] == [Place(0, 0), Place(1, 0)]


def test_a_batch_that_comes_twice_is_a_mistake_of_ours() -> None:
    merge = plan_of(4).merge(plan_of(4).start(0), 1000, in_order=True)
    arrive(merge, merge.ask(), 1)
    with pytest.raises(AssertionError, match="twice"):
        merge.arrived(Place(0, 0))


def test_every_epoch_is_opened_before_its_batches_are_asked_for_even_the_tiniest() -> None:
    plan = plan_of(1)
    merge = Merge(legs(plan, 0, plan.start(0)), prefetch_bytes=1000, in_order=True)
    opened: set[int] = set()
    for epoch in range(5):
        asked = merge.ask()
        opened.update(leg.epoch for leg in merge.legs_to_open())
        assert {place.epoch for place in asked} <= opened <= set(range(epoch + 2))
        arrive(merge, asked, 1)
        assert merge.take() == Place(epoch, 0)
