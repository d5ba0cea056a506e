from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stoker.formats.chunks import Chunks, cut

Row = tuple[int, int, int]  # shard, offset, size


def arrays(rows: list[Row], num_shards: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    counts = np.bincount([shard for shard, _, _ in rows], minlength=num_shards) if num_shards else np.zeros(0)
    firsts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    offset = np.array([offset for _, offset, _ in rows], np.int64)
    return offset, np.array([size for _, _, size in rows], np.uint32), firsts


def listed(chunks: Chunks) -> list[tuple[int, int, int, int]]:
    table = chunks.table
    columns = (chunks.shard, table.first_sample, table.num_rows, table.size_bytes)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_rows_of_one_bucket_make_a_chunk() -> None:
    rows = [(0, 0, 400), (0, 400, 400), (0, 800, 400), (0, 1200, 100), (2, 0, 5000), (2, 5000, 10)]
    assert listed(cut(*arrays(rows, 3), chunk_bytes=1000)) == [
        (0, 0, 3, 1200),
        (0, 3, 1, 100),
        (2, 4, 1, 5000),
        (2, 5, 1, 10),
    ]


def test_gaps_between_rows_are_read_with_them() -> None:
    rows = [(0, 100, 50), (0, 500, 50)]
    assert listed(cut(*arrays(rows, 1), chunk_bytes=1000)) == [(0, 0, 2, 450)]


def test_no_rows_no_chunks() -> None:
    for num_shards in (0, 1, 2):
        chunks = cut(*arrays([], num_shards), chunk_bytes=1000)
        assert listed(chunks) == []
        assert chunks.table.num_samples == 0


def test_a_whole_shard_is_one_chunk() -> None:
    rows = [(0, 0, 900), (0, 900, 900), (1, 0, 900), (1, 900, 900), (1, 1800, 900)]
    whole = np.array([False, True])
    assert listed(cut(*arrays(rows, 2), chunk_bytes=100, whole=whole)) == [
        (0, 0, 1, 900),
        (0, 1, 1, 900),
        (1, 2, 3, 2700),
    ]


def test_at_most_so_many_rows() -> None:
    rows = [(0, at, 1) for at in range(10)]
    assert [num_rows for _, _, num_rows, _ in listed(cut(*arrays(rows, 1), 1000, max_rows=4))] == [4, 4, 2]


def test_a_chunk_may_be_beyond_4_gib() -> None:
    rows = [(0, 5 << 30, 100), (0, (5 << 30) + 100, 4_000_000_000)]
    ((_, _, _, size_bytes),) = listed(cut(*arrays(rows, 1), chunk_bytes=1 << 40))
    assert size_bytes == 4_000_000_100


shards = st.lists(st.lists(st.integers(1, 3000), max_size=12), max_size=5)


@given(shards, st.integers(1, 4000))
def test_laws(sizes: list[list[int]], chunk_bytes: int) -> None:
    rows = [(shard, sum(run[:i]), run[i]) for shard, run in enumerate(sizes) for i in range(len(run))]
    chunks = cut(*arrays(rows, len(sizes)), chunk_bytes)
    covered: list[int] = []
    for index, (shard, first, num_rows, size_bytes) in enumerate(listed(chunks)):
        assert chunks.rows(index) == (first, first + num_rows)
        covered += range(first, first + num_rows)
        inside = rows[first : first + num_rows]
        assert {row[0] for row in inside} == {shard}
        assert len({offset // chunk_bytes for _, offset, _ in inside}) == 1
        assert size_bytes == sum(size for _, _, size in inside)
    assert covered == list(range(len(rows)))
    assert chunks.table.num_samples == len(rows)


def test_blocks_do_not_change_the_answer(monkeypatch: object) -> None:
    generator = np.random.default_rng(0)
    size = generator.integers(1, 3000, 5000).astype(np.uint32)
    offset = np.concatenate([[0], np.cumsum(size)[:-1]]).astype(np.int64)
    firsts = np.array([0, 5000], np.int64)
    expected = listed(cut(offset, size, firsts, 10_000))
    monkeypatch.setattr("stoker.formats.chunks._BLOCK_ROWS", 7)  # type: ignore[attr-defined]
    assert listed(cut(offset, size, firsts, 10_000)) == expected
