"""Which worker gets the next batch, and which batch is handed out next."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from stoker.compat.crew import Task
from stoker.compat.window import Window


def task(batch_index: int) -> Task:
    return Task(batch_index, f"keys {batch_index}")


def in_turn(num_workers: int, max_tasks: int = 8, *, in_order: bool = True) -> Window:
    return Window(num_workers, max_tasks, in_order=in_order, deals_in_turn=True)


def test_batches_are_dealt_in_turn() -> None:
    window = in_turn(3)
    assert [window.ask(task(index)) for index in range(5)] == [0, 1, 2, 0, 1]
    assert window.unmade() == [(0, task(0)), (1, task(1)), (2, task(2)), (0, task(3)), (1, task(4))]
    assert window.waits_for() == (0, task(0))


def test_it_goes_on_at_a_worker() -> None:
    window = Window(3, 8, in_order=True, deals_in_turn=True, first_worker=2)
    assert [window.ask(task(7)), window.ask(task(8))] == [2, 0]


def test_there_is_room_until_enough_is_under_way_and_again_when_one_was_handed_out() -> None:
    window = in_turn(2, max_tasks=2)
    window.ask(task(0))
    window.ask(task(1))
    assert not window.has_room
    window.made(0, "first")
    assert not window.has_room, "it is made, not handed out"
    assert window.take() == "first"
    assert window.has_room


def test_in_order_what_is_made_early_waits() -> None:
    window = in_turn(2)
    window.ask(task(0))
    window.ask(task(1))
    window.made(1, "second")
    assert window.take() is None
    window.made(0, "first")
    assert [window.take(), window.take(), window.take()] == ["first", "second", None]
    assert window.is_empty


def test_without_order_what_is_made_is_handed_out() -> None:
    window = in_turn(2, in_order=False)
    window.ask(task(0))
    window.ask(task(1))
    window.made(1, "second")
    assert window.take() == "second"
    assert not window.is_empty


def test_a_batch_goes_to_the_worker_with_the_fewest_in_hand() -> None:
    window = Window(2, 8, in_order=True, deals_in_turn=False)
    assert [window.ask(task(index)) for index in range(4)] == [0, 1, 0, 1]
    window.made(1, "")
    window.made(3, "")
    assert [window.ask(task(4)), window.ask(task(5))] == [1, 1]


def test_what_comes_twice_or_unasked_is_dropped() -> None:
    window = in_turn(1)
    window.ask(task(0))
    assert window.made(0, "once")
    assert not window.made(0, "twice")
    assert not window.made(5, "unasked")
    assert window.take() == "once"
    assert not window.made(0, "late")


def test_a_worker_whose_data_end_is_passed_over() -> None:
    window = in_turn(3)
    for key in range(6):
        window.ask(task(key))
    window.made(1, "made before the end")
    window.ended(1)
    assert [made.batch_index for _, made in window.unmade()] == [0, 2, 3, 5]
    assert [window.ask(task(6 + index)) for index in range(3)] == [0, 2, 0]
    window.ended(0)
    window.ended(2)
    assert not window.has_room
    assert window.take() == "made before the end"
    assert window.is_empty


def test_one_worker_may_take_over_everything() -> None:
    window = in_turn(3)
    for key in range(4):
        window.ask(task(key))
    window.only(0)
    assert [(worker, made.batch_index) for worker, made in window.unmade()] == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert window.ask(task(4)) == 0


def test_what_lies_behind_a_slow_batch_may_move_to_a_worker_that_has_nothing_to_do() -> None:
    window = Window(2, 8, in_order=True, deals_in_turn=False)
    for index in range(4):
        window.ask(task(index))
    assert window.to_move() is None, "both have something in hand"
    window.made(1, "")
    window.made(3, "")
    assert window.to_move() == (0, 1, task(2))
    window.move(task(2), 1)
    assert window.unmade() == [(0, task(0)), (1, task(2))]
    window.made(2, "")
    assert window.to_move() is None, "what was begun stays"


def test_dealt_in_turn_nothing_moves() -> None:
    window = in_turn(2)
    for index in range(3):
        window.ask(task(index))
    window.made(1, "")
    assert window.to_move() is None


def test_a_death_counts_against_the_batch_that_was_begun() -> None:
    window = in_turn(2)
    for key in range(4):
        window.ask(task(key))
    assert window.lost(0) == 1
    window.made(0, "made by the one that took its place")
    assert window.lost(0) == 1, "this was another batch"
    assert window.lost(0) == 2
    assert window.lost(1) == 1
    assert [made.batch_index for _, made in window.unmade_of(0)] == [2]


def test_a_death_of_an_idle_worker_counts_against_nobody() -> None:
    assert in_turn(1).lost(0) == 0


@given(
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=4),
    ahead=st.integers(1, 3),
    order=st.randoms(use_true_random=False),
)
def test_iterable_datasets_are_dealt_as_torch_deals_them(lengths: list[int], ahead: int, order: object) -> None:
    """Whatever the timing: in turn, those whose data ended passed over."""
    window = in_turn(len(lengths), ahead * len(lengths))
    queues: list[deque[int]] = [deque() for _ in lengths]
    made = [0] * len(lengths)
    has_ended = [False] * len(lengths)
    handed_out = []
    num_asked = 0
    while True:
        while (result := window.take()) is not None:
            handed_out.append(result)
        while window.has_room:
            worker = window.ask(task(num_asked))
            queues[worker].append(num_asked)
            num_asked += 1
        busy = [worker for worker, queue in enumerate(queues) if queue and not has_ended[worker]]
        if not busy:
            break
        worker = order.choice(busy)  # type: ignore[attr-defined]
        batch_index = queues[worker].popleft()
        if made[worker] == lengths[worker]:
            has_ended[worker] = True
            window.ended(worker)
        else:
            window.made(batch_index, (worker, made[worker]))
            made[worker] += 1
    assert window.is_empty
    expected = [
        (worker, turn) for turn in range(max(lengths)) for worker, length in enumerate(lengths) if turn < length
    ]
    assert handed_out == expected
