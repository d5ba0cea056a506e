"""A cut range is whole, in order, even; joined ranges hold all that is wanted, and little else."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from stoker.storage.ranges import ByteRange, join, split
from stoker.storage.store import ObjectRange


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 24), st.integers(1, 1 << 20))
def test_parts_cover_the_range_in_order_with_the_fewest_even_parts(start: int, num_bytes: int, max_bytes: int) -> None:
    max_bytes = max(max_bytes, num_bytes // 200 or 1)
    parts = split(ByteRange(start, start + num_bytes), max_bytes)
    assert parts[0].start == start
    assert parts[-1].stop == start + num_bytes
    assert all(before.stop == after.start for before, after in itertools.pairwise(parts))
    sizes = [part.num_bytes for part in parts]
    assert max(sizes) <= max_bytes
    assert max(sizes) - min(sizes) <= 1
    assert len(parts) == max(1, -(-num_bytes // max_bytes))


ranges = st.lists(
    st.builds(
        lambda url, start, size, version: ObjectRange(url, start, start + size, version),
        st.sampled_from(["s3://b/a", "s3://b/c"]),
        st.integers(0, 300),
        st.integers(1, 60),
        st.sampled_from(["", "v1"]),
    ),
    max_size=20,
)


@given(ranges, st.integers(0, 40), st.integers(1, 120))
def test_each_range_lies_in_one_request(wanted: list[ObjectRange], gap_bytes: int, max_bytes: int) -> None:
    joined = join(wanted, gap_bytes=gap_bytes, max_bytes=max_bytes)
    assert sorted(number for one in joined for number in one.members) == list(range(len(wanted)))
    assert [min(one.members) for one in joined] == sorted(min(one.members) for one in joined)
    for one in joined:
        inside = [wanted[number] for number in one.members]
        assert {(each.url, each.version) for each in inside} == {(one.whole.url, one.whole.version)}
        assert min(each.start for each in inside) == one.whole.start
        assert max(each.stop for each in inside) == one.whole.stop
        covered = set().union(*(range(each.start, each.stop) for each in inside))
        missing = sorted(set(range(one.whole.start, one.whole.stop)) - covered)
        runs = [0] + [at for at in range(1, len(missing)) if missing[at] != missing[at - 1] + 1] + [len(missing)]
        assert all(stop - start <= gap_bytes for start, stop in itertools.pairwise(runs))
        assert one.whole.num_bytes <= max_bytes or any(
            (each.start, each.stop) == (one.whole.start, one.whole.stop) for each in inside
        )


@given(ranges)
def test_what_is_read_does_not_depend_on_the_order_of_asking(wanted: list[ObjectRange]) -> None:
    there = {one.whole for one in join(wanted)}
    assert there == {one.whole for one in join(wanted[::-1])}


def test_neighbours_become_one_request_up_to_the_largest() -> None:
    chunks = [ObjectRange("s3://b/a", start, start + 10) for start in range(0, 50, 10)]
    assert [one.members for one in join(chunks, gap_bytes=0, max_bytes=30)] == [(0, 1, 2), (3, 4)]
