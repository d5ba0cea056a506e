"""Free ranges never overlap what is taken, and join again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.memory.free_ranges import FreeRanges


def test_ranges_come_from_the_front_and_join_when_given_back() -> None:
    free = FreeRanges(100)
    assert [free.take(30), free.take(30), free.take(30), free.take(30)] == [0, 30, 60, None]
    free.give(30, 30)
    assert free.take(31) is None
    free.give(0, 30)
    assert free.take(31) == 0
    free.give(60, 30)
    assert free.ranges == [(31, 100)]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=60))
def test_taken_ranges_never_overlap_and_all_come_back(steps: list[tuple[bool, int]]) -> None:
    free = FreeRanges(200)
    taken: list[tuple[int, int]] = []
    for gives, number in steps:
        if gives and taken:
            free.give(*taken.pop(number % len(taken)))
        elif (start := free.take(number)) is not None:
            assert all(start + number <= other or other + size <= start for other, size in taken)
            taken.append((start, number))
        covered = sum(stop - start for start, stop in free.ranges) + sum(size for _, size in taken)
        assert covered == 200
    for start, size in taken:
        free.give(start, size)
    assert free.ranges == [(0, 200)]
