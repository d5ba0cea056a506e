"""A cut range is whole, in order, even."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from stoker.storage.ranges import ByteRange, split


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
