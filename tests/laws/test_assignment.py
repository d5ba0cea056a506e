"""What must hold whenever lanes are dealt out to workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from stoker_service.dispatcher.assign import assign
from stoker_service.dispatcher.model import PipelineId, WorkerId
from stoker_service.dispatcher.speeds import LIMIT, STEP, TOLERANCE, relative_speeds, settled

Owners = dict[int, WorkerId]

P = PipelineId("p")
POOL = [WorkerId(name) for name in "abcdefghijkl"]
some_workers = st.sets(st.sampled_from(POOL), min_size=1)
some_weights = st.floats(0.01, 1000.0)
fleets = st.dictionaries(st.sampled_from(POOL), some_weights, min_size=1)
even_fleets = st.builds(dict.fromkeys, some_workers, some_weights)
lane_counts = st.integers(1, 70)


def owned_before(num_lanes: int) -> st.SearchStrategy[Owners]:
    """Any owners at all, also of workers that are gone and lanes that are no more."""
    return st.dictionaries(st.integers(0, num_lanes + 5), st.sampled_from(POOL))


def num_moved(before: Mapping[int, WorkerId], after: Mapping[int, WorkerId], weights: Mapping[WorkerId, float]) -> int:
    """Lanes taken from a worker that could have kept them."""
    return sum(after[lane] != owner for lane, owner in before.items() if lane in after and owner in weights)


def exact_shares(num_lanes: int, weights: Mapping[WorkerId, float]) -> dict[WorkerId, Fraction]:
    total = sum(Fraction(weight) for weight in weights.values())
    return {worker: num_lanes * Fraction(weight) / total for worker, weight in weights.items()}


@given(lane_counts, fleets, st.data())
def test_every_lane_has_one_owner_of_those_who_are_able(
    num_lanes: int, weights: dict[WorkerId, float], data: st.DataObject
) -> None:
    owners = assign(P, num_lanes, weights, data.draw(owned_before(num_lanes)))
    assert list(owners) == list(range(num_lanes))
    assert set(owners.values()) <= set(weights)


@given(lane_counts, st.data())
def test_nobody_able_means_no_owner(num_lanes: int, data: st.DataObject) -> None:
    assert assign(P, num_lanes, {}, data.draw(owned_before(num_lanes))) == {}


@given(lane_counts, fleets, st.data())
def test_everybody_has_his_exact_share_rounded_up_or_down(
    num_lanes: int, weights: dict[WorkerId, float], data: st.DataObject
) -> None:
    busy = data.draw(st.dictionaries(st.sampled_from(POOL), st.integers(0, 50)))
    counts = Counter(assign(P, num_lanes, weights, data.draw(owned_before(num_lanes)), busy).values())
    for worker, share in exact_shares(num_lanes, weights).items():
        assert abs(counts[worker] - share) < 1


@given(lane_counts, fleets, st.data())
def test_no_lane_moves_from_a_worker_that_has_not_too_many(
    num_lanes: int, weights: dict[WorkerId, float], data: st.DataObject
) -> None:
    before = data.draw(owned_before(num_lanes))
    after = assign(P, num_lanes, weights, before)
    held = Counter(owner for lane, owner in before.items() if lane < num_lanes)
    got = Counter(after.values())
    assert num_moved(before, after, weights) == sum(max(0, held[worker] - got[worker]) for worker in weights)


@given(st.integers(1, 5), st.sets(st.sampled_from(POOL[:3]), min_size=1), st.data())
def test_with_equal_weights_no_fair_assignment_moves_fewer_lanes(
    num_lanes: int, workers: set[WorkerId], data: st.DataObject
) -> None:
    before = data.draw(st.dictionaries(st.integers(0, num_lanes - 1), st.sampled_from(POOL[:4])))
    weights = dict.fromkeys(workers, 1.0)
    shares = exact_shares(num_lanes, weights)

    def is_fair(owners: Owners) -> bool:
        counts = Counter(owners.values())
        return all(abs(counts[worker] - share) < 1 for worker, share in shares.items())

    every = (dict(enumerate(owners)) for owners in product(sorted(workers), repeat=num_lanes))
    least = min(num_moved(before, owners, weights) for owners in every if is_fair(owners))
    assert num_moved(before, assign(P, num_lanes, weights, before), weights) == least


@given(lane_counts, fleets, st.data())
def test_rounding_moves_a_lane_only_to_gain_more_than_half_a_lane(
    num_lanes: int, weights: dict[WorkerId, float], data: st.DataObject
) -> None:
    before = assign(P, num_lanes, weights, data.draw(owned_before(num_lanes)))
    after = assign(P, num_lanes, weights, before)
    old, new, shares = Counter(before.values()), Counter(after.values()), exact_shares(num_lanes, weights)
    losers = [worker for worker in weights if new[worker] < old[worker]]
    winners = [worker for worker in weights if new[worker] > old[worker]]
    for loser, winner in product(losers, winners):
        assert (shares[winner] - old[winner]) - (shares[loser] - new[loser]) >= Fraction(49, 100)
    assert assign(P, num_lanes, weights, after) == after


@given(lane_counts, even_fleets, st.data())
def test_a_worker_that_joins_takes_and_nobody_else_does(
    num_lanes: int, weights: dict[WorkerId, float], data: st.DataObject
) -> None:
    before = assign(P, num_lanes, weights, data.draw(owned_before(num_lanes)))
    joined = WorkerId("new")
    after = assign(P, num_lanes, {**weights, joined: next(iter(weights.values()))}, before)
    assert {after[lane] for lane in before if after[lane] != before[lane]} <= {joined}


@given(lane_counts, even_fleets, st.data())
def test_when_a_worker_leaves_only_its_lanes_move(
    num_lanes: int, weights: dict[WorkerId, float], data: st.DataObject
) -> None:
    before = assign(P, num_lanes, weights, data.draw(owned_before(num_lanes)))
    left = data.draw(st.sampled_from(sorted(weights)))
    rest = {worker: weight for worker, weight in weights.items() if worker != left}
    after = assign(P, num_lanes, rest, before)
    assert all(after.get(lane) == owner for lane, owner in before.items() if owner != left)


@given(lane_counts, fleets, st.data())
def test_the_same_input_gives_the_same_owners_in_whatever_order_it_comes(
    num_lanes: int, weights: dict[WorkerId, float], data: st.DataObject
) -> None:
    before = data.draw(owned_before(num_lanes))
    shuffled = dict(data.draw(st.permutations(list(weights.items()))))
    again = dict(data.draw(st.permutations(list(before.items()))))
    assert assign(P, num_lanes, weights, before) == assign(P, num_lanes, shuffled, again)


@given(st.lists(st.floats(1 / LIMIT, LIMIT), max_size=5), st.data())
def test_noise_below_the_grid_changes_no_speed_and_so_moves_nothing(speeds: list[float], data: st.DataObject) -> None:
    slow = [settled(speed, 1.0) for speed in speeds]
    kept = dict(zip(POOL, [*slow, 1.0, *(1 / speed for speed in slow)], strict=False))  # the median is 1
    width = TOLERANCE**0.5 * 0.999  # the median may go one way and a worker the other
    rates = {worker: 100.0 * speed * data.draw(st.floats(1 / width, width)) for worker, speed in kept.items()}
    assert relative_speeds(rates, kept) == kept


@given(st.floats(1e-3, 1e3), st.floats(1 / LIMIT, LIMIT))
def test_a_speed_that_has_just_been_settled_stands_noise_either_way(measured: float, kept: float) -> None:
    speed = settled(measured, kept)
    within = min(max(measured, 1 / LIMIT), LIMIT)
    width = TOLERANCE / STEP**0.5 * 0.999
    if speed != kept:
        assert settled(within * width, speed) == settled(within / width, speed) == speed
