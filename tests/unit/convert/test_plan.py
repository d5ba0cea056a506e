"""Which records go into which shard."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stoker.convert.plan import ROW_BYTES, plan
from stoker.convert.records import joined

parts = st.lists(st.lists(st.integers(0, 5000), max_size=12), min_size=1, max_size=8).filter(any)


@given(parts, st.integers(1, 20_000), st.one_of(st.none(), st.integers(1, 5)), st.one_of(st.none(), st.integers()))
def test_every_record_is_in_one_shard_and_shards_are_as_large_as_was_asked(
    sizes: list[list[int]], shard_bytes: int, shard_rows: int | None, seed: int | None
) -> None:
    flat = [size for part in sizes for size in part]
    found = plan(joined([np.array(part, np.int64) for part in sizes]), shard_bytes, shard_rows, seed)
    rows = [found.rows(shard).tolist() for shard in range(found.num_shards)]
    assert sorted(number for shard in rows for number in shard) == list(range(len(flat)))
    for shard in rows:
        assert shard
        assert len(shard) == 1 or sum(flat[number] + ROW_BYTES for number in shard) <= shard_bytes
        assert shard_rows is None or len(shard) <= shard_rows


@given(parts, st.one_of(st.none(), st.integers()))
def test_what_is_read_for_a_shard_is_what_is_in_it(sizes: list[list[int]], seed: int | None) -> None:
    found = plan(joined([np.array(part, np.int64) for part in sizes]), 8000, None, seed)
    first = np.cumsum([0, *map(len, sizes)])
    for shard in range(found.num_shards):
        placed = {}
        reads = list(found.reads(shard))
        assert len({wanted.part for wanted in reads}) == len(reads)
        for wanted in reads:
            assert list(wanted.rows) == sorted(wanted.rows)
            for row, number, place in zip(wanted.rows, wanted.numbers, wanted.places, strict=True):
                assert number == first[wanted.part] + row < first[wanted.part + 1]
                placed[place] = number
        assert [placed[place] for place in range(len(placed))] == found.rows(shard).tolist()


def test_a_seed_mixes_and_another_mixes_differently() -> None:
    survey = joined([np.full(500, 10, np.int64)])
    orders = [plan(survey, 10**6, None, seed).order.tolist() for seed in (None, 0, 0, 1)]
    assert orders[0] == list(range(500))
    assert orders[1] == orders[2] != orders[3]
    assert orders[1] != orders[0] != orders[3]


def test_the_cut_of_an_order_is_pinned() -> None:
    """Resuming a conversion with another version of Stoker must find the same plan."""
    found = plan(joined([np.full(10, 100, np.int64)]), 4 * (100 + ROW_BYTES), None, 7)
    assert found.stops.tolist() == [0, 4, 8, 10]
    assert found.order.tolist() == [3, 7, 1, 9, 5, 4, 8, 0, 2, 6]
