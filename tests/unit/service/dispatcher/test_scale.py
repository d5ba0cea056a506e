"""How many workers are wanted, and why."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker_service.dispatcher.scale import Demand, num_wanted


def demand(
    *, lanes: int = 64, owners: int = 4, rows: float = 400.0, each: float = 100.0, starved: float = 0.0
) -> Demand:
    return Demand(lanes, owners, rows, each, starved)


def test_no_job_wants_no_worker() -> None:
    assert num_wanted([], 5).num_workers == 0


def test_a_job_without_workers_wants_one() -> None:
    assert num_wanted([demand(owners=0, rows=0, each=0)], 0).num_workers == 1


def test_what_is_not_measured_stays_as_it_is() -> None:
    wanted = num_wanted([demand(rows=0, each=0)], 4)
    assert (wanted.num_workers, wanted.reason) == (4, "nothing is measured yet")


def test_trainers_that_do_not_wait_keep_a_fifth_of_head_room() -> None:
    wanted = num_wanted([demand(rows=200.0)], 4)
    assert (wanted.num_workers, wanted.reason) == (3, "trainers do not wait")  # 2 for the rows, 2.4 with head-room


def test_trainers_that_wait_half_the_time_want_twice_as_many_and_head_room() -> None:
    wanted = num_wanted([demand(starved=0.5)], 8)
    assert (wanted.num_workers, wanted.reason) == (10, "trainers wait 50% of the time, limited by decoding")


def test_when_storage_limits_a_worker_counts_for_what_it_gives() -> None:
    wanted = num_wanted([demand(rows=80.0, starved=0.5)], 4)
    assert wanted.num_workers == 9  # 10, but at most twice as many and one more
    assert "limited by storage or network (decoding threads are busy 20% of the time)" in wanted.reason


def test_more_workers_than_lanes_are_never_wanted() -> None:
    wanted = num_wanted([demand(lanes=8, owners=6, rows=600.0, starved=0.8)], 6)
    assert wanted.num_workers == 8
    assert "more than 8 workers would find no lane" in wanted.reason


def test_pipelines_add_up() -> None:
    assert num_wanted([demand(rows=200.0), demand(rows=100.0)], 4).num_workers == 4  # 2.4 and 1.2


def test_a_job_that_just_opened_keeps_a_worker() -> None:
    assert num_wanted([demand(rows=200.0), demand(rows=0, each=0)], 4).num_workers == 4  # 2.4 and 1


numbers = st.floats(0, 1e6)
demands = st.lists(
    st.builds(Demand, st.integers(1, 100), st.integers(0, 100), numbers, numbers, st.floats(0, 1)), max_size=5
)


@given(demands, st.integers(0, 100))
def test_the_answer_is_bounded_and_explained(some: list[Demand], num_workers: int) -> None:
    wanted = num_wanted(some, num_workers)
    assert wanted.reason
    assert 0 <= wanted.num_workers <= max(1, sum(entry.num_lanes for entry in some))
    assert wanted.num_workers <= 2 * num_workers + 1
    assert (wanted.num_workers == 0) == (not some)


@pytest.mark.parametrize("starved", [0.03, 0.1, 0.3, 0.6, 0.9, 1.0])
def test_more_waiting_never_wants_fewer(starved: float) -> None:
    assert num_wanted([demand(starved=starved)], 50).num_workers >= num_wanted([demand()], 50).num_workers
