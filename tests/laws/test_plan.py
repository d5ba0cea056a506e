"""What must hold of every plan, whatever the sizes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stoker.errors import StateError
from stoker.plan import resume
from stoker.plan.order import Order, sequential, shuffled
from stoker.plan.resume import Position
from stoker.plan.steps import Steps, Tail

chunk_rows = st.lists(st.integers(1, 30), min_size=1, max_size=40).map(lambda rows: np.array(rows, np.int32))
small = st.integers(1, 9)
seeds = st.integers(-(2**70), 2**70)
tails: st.SearchStrategy[Tail] = st.sampled_from(["drop", "pad", "repeat"])


def unmasked(steps: Steps, *, first_step: int = 0) -> list[int]:
    """The positions that are samples of their own, over all ranks, in the order of batches."""
    found: list[int] = []
    for step in range(first_step, steps.num_steps):
        for rank in range(steps.world_size):
            batch = steps.batch(step, rank)
            mask = np.ones(len(batch.positions), np.bool_) if batch.mask is None else batch.mask
            found.extend(batch.positions[mask].tolist())
    return found


def steps_of(position: Position, world_size: int, tail: Tail) -> Steps:
    return Steps(position.lanes, world_size, tail, first_batch=position.num_consumed)


@given(chunk_rows, small, seeds, st.integers(0, 5))
def test_an_order_is_a_permutation(rows: NDArray[np.int32], window: int, seed: int, epoch: int) -> None:
    order = shuffled(rows, window_chunks=window, seed=seed, epoch=epoch)
    chunks, in_chunk = order.at(np.arange(order.num_samples))
    first = np.concatenate([[0], np.cumsum(rows)[:-1]])
    assert sorted((first[chunks] + in_chunk).tolist()) == list(range(int(rows.sum())))


@given(chunk_rows, small, seeds)
def test_samples_stay_in_their_window_of_chunks(rows: NDArray[np.int32], window: int, seed: int) -> None:
    order = shuffled(rows, window_chunks=window, seed=seed, epoch=0)
    positions = np.arange(order.num_samples)
    chunks, _ = order.at(positions)
    place = {int(chunk): index for index, chunk in enumerate(order.chunk_at)}
    assert [place[int(chunk)] // window for chunk in chunks] == order.windows(positions).tolist()


@given(chunk_rows, small, seeds, st.data())
def test_an_order_is_known_at_any_position_alone(
    rows: NDArray[np.int32], window: int, seed: int, data: st.DataObject
) -> None:
    order = shuffled(rows, window_chunks=window, seed=seed, epoch=3)
    whole = np.stack(order.at(np.arange(order.num_samples)))
    position = data.draw(st.integers(0, order.num_samples - 1))
    assert np.stack(order.at(np.array([position])))[:, 0].tolist() == whole[:, position].tolist()


@given(chunk_rows)
def test_without_shuffle_the_order_is_the_manifests(rows: NDArray[np.int32]) -> None:
    order = sequential(rows, epoch=0)
    chunks, in_chunk = order.at(np.arange(order.num_samples))
    expected = [(chunk, row) for chunk, count in enumerate(rows) for row in range(count)]
    assert list(zip(chunks.tolist(), in_chunk.tolist(), strict=True)) == expected


def test_epochs_and_seeds_give_different_orders() -> None:
    rows = np.full(64, 10, np.int32)
    orders = [shuffled(rows, window_chunks=8, seed=seed, epoch=epoch) for seed in (0, 1) for epoch in (0, 1)]
    firsts = {tuple(np.concatenate(order.at(np.arange(100))).tolist()) for order in orders}
    assert len(firsts) == 4


@given(st.integers(0, 400), small, small, small)
def test_lanes_differ_by_at_most_one_batch_the_longer_first(size: int, batch: int, lanes: int, world: int) -> None:
    plan = resume.start(0, size, batch_size=batch, num_lanes=lanes).lanes
    lengths = [stop - start for start, stop in map(plan.lane, range(lanes))]
    assert sum(lengths) == plan.num_full
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] - lengths[-1] <= 1


@given(st.integers(1, 400), small, small, small)
def test_every_sample_exactly_once_with_padding(size: int, batch: int, lanes: int, world: int) -> None:
    steps = steps_of(resume.start(0, size, batch_size=batch, num_lanes=lanes), world, "pad")
    assert sorted(unmasked(steps)) == list(range(size))


@given(st.integers(0, 400), small, small)
def test_every_sample_exactly_once_with_a_short_last_batch(size: int, batch: int, lanes: int) -> None:
    steps = steps_of(resume.start(0, size, batch_size=batch, num_lanes=lanes), 1, "short")
    assert sorted(unmasked(steps)) == list(range(size))


@given(st.integers(1, 400), small, small, small, tails)
def test_all_ranks_have_equal_steps_of_full_batches(size: int, batch: int, lanes: int, world: int, tail: Tail) -> None:
    steps = steps_of(resume.start(0, size, batch_size=batch, num_lanes=lanes), world, tail)
    shapes = {len(steps.batch(step, rank).positions) for step in range(steps.num_steps) for rank in range(world)}
    assert shapes <= {batch}


@given(st.integers(1, 400), small, small, small)
def test_dropping_loses_less_than_one_step_and_repeats_nothing(size: int, batch: int, lanes: int, world: int) -> None:
    steps = steps_of(resume.start(0, size, batch_size=batch, num_lanes=lanes), world, "drop")
    found = unmasked(steps)
    assert len(found) == len(set(found)) > size - batch * world


@given(st.integers(1, 400), small, small, small, small, st.data())
def test_the_rest_after_a_resume_on_other_ranks_is_the_rest(
    size: int, batch: int, lanes: int, world: int, new_world: int, data: st.DataObject
) -> None:
    start = resume.start(0, size, batch_size=batch, num_lanes=lanes)
    before = steps_of(start, world, "pad")
    step = data.draw(st.integers(0, before.num_steps))
    saved = Position(0, start.lanes, before.consumed(step))
    after = steps_of(resume.from_json(json.loads(json.dumps(saved.to_json()))), new_world, "pad")
    assert unmasked(after) == unmasked(before, first_step=step)


@given(st.integers(1, 400), st.lists(st.tuples(small, small, small), min_size=2, max_size=5), st.data())
def test_any_chain_of_new_deals_covers_exactly_the_rest(
    size: int, deals: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    batch, lanes, world = deals[0]
    position = resume.start(0, size, batch_size=batch, num_lanes=lanes)
    found: list[int] = []
    for batch, lanes, world in deals:
        position = position.dealt_again(batch_size=batch, num_lanes=lanes, rank=0, world_size=1)
        steps = steps_of(position, world, "pad")
        step = data.draw(st.integers(0, steps.num_steps))
        found += unmasked(steps)[: len(unmasked(steps)) - len(unmasked(steps, first_step=step))]
        position = Position(0, position.lanes, steps.consumed(step))
    found += unmasked(steps_of(position, world, "pad"))
    assert sorted(found) == list(range(size))


@given(st.integers(1, 10**9), st.integers(1, 4096), st.integers(1, 64), st.data())
def test_a_position_stays_small(size: int, batch: int, lanes: int, data: st.DataObject) -> None:
    position = resume.start(7, size, batch_size=batch, num_lanes=lanes)
    consumed = data.draw(st.integers(0, position.lanes.num_batches))
    position = Position(7, position.lanes, consumed).dealt_again(
        batch_size=batch + 1, num_lanes=lanes, rank=0, world_size=1
    )
    assert len(json.dumps(position.to_json())) < 4096


@given(st.integers(1, 400), small, small, small, st.data())
def test_batches_taken_in_any_sequence_end_where_those_in_order_do(
    size: int, batch: int, lanes: int, world: int, data: st.DataObject
) -> None:
    position = resume.start(0, size, batch_size=batch, num_lanes=lanes)
    rank = data.draw(st.integers(0, world - 1))
    steps = steps_of(position, world, "pad")
    own = [steps.batch(step, rank).batch_index for step in range(steps.num_steps)]
    for batch_index in data.draw(st.permutations(own)):
        position = position.taken(batch_index, rank, world)
    assert position == Position(0, position.lanes, steps.consumed(steps.num_steps))


@given(st.integers(1, 400), small, small, small, small, st.data())
def test_the_rest_of_batches_taken_out_of_order_is_dealt_again(
    size: int, batch: int, lanes: int, new_batch: int, new_lanes: int, data: st.DataObject
) -> None:
    start = resume.start(0, size, batch_size=batch, num_lanes=lanes)
    steps = steps_of(start, 1, "short")
    taken = data.draw(st.lists(st.integers(0, steps.num_steps - 1), unique=True))
    position = start
    for batch_index in taken:
        position = position.taken(batch_index, 0, 1)
    saved = resume.from_json(json.loads(json.dumps(position.to_json())))
    assert saved == position
    again = saved.dealt_again(batch_size=new_batch, num_lanes=new_lanes, rank=0, world_size=1)
    done = [int(place) for batch_index in taken for place in steps.batch(batch_index, 0).positions]
    rest = unmasked(steps_of(again, 1, "short")) if not again.ahead else None
    if rest is None:  # the cut is the same: what was taken ahead is skipped, not dealt again
        left = set(range(again.lanes.num_batches)) - set(taken)
        rest = [int(place) for batch_index in sorted(left) for place in steps.batch(batch_index, 0).positions]
    assert sorted(rest + done) == list(range(size))


def test_what_one_rank_of_several_took_ahead_continues_that_rank_alone() -> None:
    saved = resume.start(0, 64, batch_size=4, num_lanes=8).taken(5, 1, 2)
    assert saved.dealt_again(batch_size=4, num_lanes=8, rank=1, world_size=2) == saved
    for rank, world_size, batch in ((0, 2, 4), (1, 4, 4), (1, 2, 8)):
        with pytest.raises(StateError, match="rank 1 of 2"):
            saved.dealt_again(batch_size=batch, num_lanes=8, rank=rank, world_size=world_size)


def test_what_a_resume_on_twice_the_ranks_covers() -> None:
    """16 ids, one rank, batch 4; one step; then two ranks: exactly the other 12."""
    start = resume.start(0, 16, batch_size=4, num_lanes=8)
    done = unmasked(steps_of(start, 1, "pad"))[:4]
    after = steps_of(Position(0, start.lanes, 1), 2, "pad")
    assert sorted(unmasked(after) + done) == list(range(16))
    assert after.num_steps == 2


@pytest.mark.parametrize(
    "broken",
    [
        {"ranges": [[5, 3]]},
        {"ranges": [[0, 5], [4, 9]]},
        {"batch_size": 0},
        {"num_consumed": -1},
        {"epoch": None},
        {"ahead": [1], "num_consumed": 2},
        {"ahead": [5, 4]},
        {"ahead": [3], "world_size": 0},
        {"ranges": 7},
    ],
)
def test_a_position_that_no_loader_made_is_refused(broken: dict[str, object]) -> None:
    sound = resume.start(0, 10, batch_size=2, num_lanes=2).to_json()
    with pytest.raises(StateError, match="position of a saved state"):
        resume.from_json({**sound, **broken})


def test_a_billion_samples_are_planned_within_the_memory_of_their_chunks() -> None:
    """10^9 samples in 10^6 chunks; benchmarks/ has the seconds."""
    rows = np.full(10**6, 1000, np.int32)
    order: Order = shuffled(rows, window_chunks=64, seed=0, epoch=0)
    steps = steps_of(resume.start(0, order.num_samples, batch_size=256, num_lanes=8), 8, "drop")
    last = steps.batch(steps.num_steps - 1, 7)
    chunks, _ = order.at(last.positions)
    assert steps.num_steps == 10**9 // 256 // 8
    assert len(chunks) == 256
    assert order.chunk_at.nbytes + order.stops.nbytes <= 16 * 10**6
