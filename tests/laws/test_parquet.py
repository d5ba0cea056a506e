"""What must hold of Parquet shards: what was written is read, and loaders keep their laws on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import stoker
from stoker import ops
from stoker.formats.open import open_dataset
from stoker.testing import assert_equal_batches, assert_exactly_once, assert_resumable, keys_of
from support import parquet
from support.loading import batches_of, load, pictures
from support.shards import make_shards

ROWS = (7, 11, 2, 30, 1, 9)
NUM_SAMPLES = sum(ROWS)
small = st.integers(1, 7)
slow_to_draw = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

VALUES = {
    "jpg": st.binary(max_size=300),
    "txt": st.text(max_size=20),
    "cls": st.integers(-(2**63), 2**63 - 1),
    "score": st.floats(allow_nan=False),
    "flag": st.booleans(),
    "small": st.integers(0, 255).map(np.uint8),
    "cls.txt": st.binary(max_size=5),
    "tokens": arrays.arrays(np.int32, st.integers(0, 5)),
    "boxes": arrays.arrays(
        np.float32, st.tuples(st.integers(0, 3), st.just(4)), elements=st.floats(width=32, allow_nan=False)
    ),
}
fields = st.lists(st.sampled_from([*VALUES]), unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: VALUES[name] for name in names})
)
shard = st.lists(st.tuples(st.text(max_size=8), fields), max_size=12)


@pytest.fixture(scope="module")
def text_shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    return parquet.make_shards(tmp_path_factory.mktemp("text"), ROWS, images=False, group_bytes=60)


@pytest.fixture(scope="module")
def picture_shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    return parquet.make_shards(tmp_path_factory.mktemp("pictures"), ROWS)


def all_keys() -> list[str]:
    return [f"s{shard:02d}-{row:04d}" for shard, count in enumerate(ROWS) for row in range(count)]


def texts(pattern: str, **arguments: Any) -> stoker.Pipeline:
    return stoker.Pipeline(
        stoker.parquet(pattern), [ops.Label("cls")], **{"batch_size": 4, "shuffle": True, **arguments}
    )


def from_parquet(pipeline: stoker.Pipeline, pattern: str) -> stoker.Pipeline:
    return stoker.Pipeline(stoker.parquet(pattern), pipeline.ops, batch_size=4, shuffle=True, window=3)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shards=st.lists(shard, min_size=1, max_size=3), group_bytes=st.integers(1, 1000), data=st.data())
def test_what_was_written_is_read(tmp_path: Path, shards: list[Any], group_bytes: int, data: st.DataObject) -> None:
    """For any split into shards and row groups, and any of the columns that all shards have."""
    assume(all(any(values for _, values in rows) for rows in shards))  # a shard without fields is refused
    for path in tmp_path.iterdir():
        path.unlink()
    for number, rows in enumerate(shards):
        parquet.write_shard(tmp_path / f"{number}.parquet", rows, group_bytes)
    in_all = set.intersection(*({name for _, values in rows for name in values} for rows in shards))
    wanted = data.draw(st.lists(st.sampled_from(sorted(in_all)), min_size=1, unique=True)) if in_all else None
    expected = [
        (key, {name: parquet.plain(value) for name, value in values.items() if wanted is None or name in wanted})
        for rows in shards
        for key, values in rows
    ]
    dataset = open_dataset(stoker.parquet(tmp_path / "*.parquet", columns=wanted))
    assert parquet.read_all(dataset) == expected


@slow_to_draw
@given(batch=small, lanes=small, world=small, window=small, seed=st.integers(0, 2**40), epoch=st.integers(0, 3))
def test_each_sample_exactly_once_in_equal_steps(
    text_shards: str, batch: int, lanes: int, world: int, window: int, seed: int, epoch: int
) -> None:
    pipeline = texts(text_shards, batch_size=batch, lanes=lanes, window=window, seed=seed)
    assert_exactly_once(lambda rank, size: load(pipeline, rank, size), world, all_keys(), epoch=epoch)


@pytest.mark.parametrize("options", [{"num_threads": 3}, {"num_workers": 2}], ids=str)
def test_threads_and_processes_change_nothing(picture_shards: str, options: dict[str, int]) -> None:
    pipeline = from_parquet(pictures("none.tar"), picture_shards)
    assert_equal_batches(batches_of(pipeline, **options), batches_of(pipeline, num_threads=1))


def test_a_cache_changes_nothing(picture_shards: str, tmp_path: Path) -> None:
    pipeline = from_parquet(pictures("none.tar"), picture_shards)
    cache = stoker.CacheOptions(folder=str(tmp_path), cache_files=True)
    expected = batches_of(pipeline)
    for _ in range(2):
        assert_equal_batches(batches_of(pipeline, cache=cache), expected)


def test_a_resume_at_every_position_equals_the_rest(picture_shards: str) -> None:
    pipeline = from_parquet(pictures("none.tar"), picture_shards)
    assert_resumable(lambda rank, size: load(pipeline, rank, size), steps=range(-(-NUM_SAMPLES // 4) + 1), epoch=1)


def test_tar_and_parquet_give_the_same_batches(picture_shards: str, tmp_path: Path) -> None:
    """Without shuffling, since chunks are cut otherwise; crops are drawn by the sample's number."""
    make_shards(tmp_path, ROWS)
    steps = pictures("none.tar").ops
    sources = (stoker.tar(tmp_path / "shard-*.tar"), stoker.parquet(picture_shards))
    one, other = (batches_of(stoker.Pipeline(source, steps, batch_size=4, lanes=1)) for source in sources)
    assert_equal_batches(one, other)


def test_numbers_text_and_arrays_are_columns(tmp_path: Path) -> None:
    rows = [(str(n), {"cls": n, "txt": f"text {n}", "box": np.full((2, 4), n, np.float32)}) for n in range(4)]
    parquet.write_shard(tmp_path / "a.parquet", rows)
    (batch,) = batches_of(stoker.Pipeline(stoker.parquet(tmp_path / "a.parquet"), [], batch_size=4, lanes=1))
    assert batch["cls"].tolist() == [0, 1, 2, 3]
    assert batch["txt"] == ["text 0", "text 1", "text 2", "text 3"]
    assert (batch["box"].dtype, batch["box"].shape) == (np.float32, (4, 2, 4))


def test_a_damaged_row_group_costs_its_rows_and_no_others(tmp_path: Path) -> None:
    rows = [(f"{number:02d}", {"cls": number, "jpg": b"x" * 100}) for number in range(12)]
    path = Path(parquet.write_shard(tmp_path / "a.parquet", rows, group_bytes=400))
    dataset = open_dataset(stoker.parquet(path))
    assert dataset.chunks.num_rows.tolist() == [3, 3, 3, 3]
    content = bytearray(path.read_bytes())
    content[dataset.ranges(1)[0].start + 60] ^= 255
    path.write_bytes(content)
    pipeline = stoker.Pipeline(stoker.parquet(path), [ops.Label("cls")], batch_size=4, lanes=1, on_error="drop")
    assert keys_of(batches_of(pipeline)) == [f"{number:02d}" for number in (0, 1, 2, 6, 7, 8, 9, 10, 11)]
