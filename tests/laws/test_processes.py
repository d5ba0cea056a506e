"""What must hold of a pipeline's loader with worker processes: the stream is the one of this process's threads."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import ops
from stoker.errors import DataError, SampleError, TooManyBadSamplesError
from stoker.testing import assert_equal_batches, assert_exactly_once
from support.loading import load, pictures
from support.process_programs import noting_pids, pids_in, wait_until
from support.servers import Bucket
from support.shards import make_broken_shard, make_shards, tar_bytes

ROWS = (7, 11, 2, 30, 1, 9)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("pictures")
    make_shards(folder, ROWS)
    return f"{folder}/shard-*.tar"


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("broken")
    make_broken_shard(folder / "broken.tar", 20)
    return f"{folder}/broken.tar"


def rows_seen(loader: stoker.DataLoader, num_epochs: int = 1) -> list[dict[str, Any]]:
    return [batch for _ in range(num_epochs) for batch in loader]


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_the_stream_is_that_of_threads(shards: str, num_workers: int) -> None:
    pipeline = pictures(shards)
    with load(pipeline) as loader:
        expected = rows_seen(loader, 3)
    with load(pipeline, num_workers=num_workers, num_threads=3) as loader:
        assert_equal_batches(rows_seen(loader, 3), expected)
        assert loader.stats()["batches"] == len(expected)


def test_arrow_batches_are_equal_with_their_metadata(shards: str) -> None:
    pipeline = pictures(shards)
    with load(pipeline, output="arrow") as one, load(pipeline, output="arrow", num_workers=2) as other:
        for expected, found in zip(one, other, strict=True):
            assert found.equals(expected, check_metadata=True)


def test_torch_batches_are_equal_and_may_be_written_to(shards: str) -> None:
    torch = pytest.importorskip("torch")
    pipeline = pictures(shards)
    with load(pipeline, output="torch") as one, load(pipeline, output="torch", num_workers=2) as other:
        for expected, found in zip(one, other, strict=True):
            assert torch.equal(found["image"], expected["image"])
            found["image"].zero_()


@pytest.mark.parametrize(
    "settings", [{"shuffle": False, "lanes": 1}, {"shuffle": "full"}, {"lanes": 3, "batch_size": 3}]
)
def test_the_stream_is_that_of_threads_in_every_kind_of_order(shards: str, settings: dict[str, Any]) -> None:
    pipeline = pictures(shards, **settings)
    with load(pipeline) as one, load(pipeline, num_workers=2, num_threads=2) as other:
        assert_equal_batches(rows_seen(other, 2), rows_seen(one, 2))


@pytest.mark.parametrize("tail", ["drop", "pad", "repeat"])
def test_the_ranks_share_an_epoch_as_threads_do(shards: str, tail: Any) -> None:
    pipeline = pictures(shards, batch_size=7, tail=tail)
    for rank in range(2):
        with load(pipeline, rank, 2) as one, load(pipeline, rank, 2, num_workers=2) as other:
            assert_equal_batches(rows_seen(other, 2), rows_seen(one, 2))


def test_a_short_last_batch_is_that_of_threads(shards: str) -> None:
    pipeline = pictures(shards, batch_size=7, tail="short")
    with load(pipeline) as one, load(pipeline, num_workers=3) as other:
        batches = rows_seen(other)
        assert_equal_batches(batches, rows_seen(one))
        assert len(batches[-1]["cls"]) == sum(ROWS) % 7


def test_each_sample_exactly_once_over_all_ranks(shards: str) -> None:
    keys = [f"s{shard:02d}-{row:04d}" for shard, count in enumerate(ROWS) for row in range(count)]
    pipeline = pictures(shards)
    assert_exactly_once(lambda rank, size: load(pipeline, rank, size, num_workers=2), 3, keys, epoch=1)


def test_users_functions_draw_the_same_numbers(shards: str) -> None:
    brightness = np.float32(0.5)

    def shade(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return sample | {"shade": brightness * np.float32(rng.random())}

    def draw(sample: dict[str, Any]) -> dict[str, Any]:
        return sample | {"drawn": np.float64(np.random.random())}  # noqa: NPY002  # the global one is what is tested

    pipeline = pictures(shards, ops.Map(shade), ops.Map(draw), ops.Filter(lambda sample: sample["shade"] > 0.1))
    with load(pipeline) as one, load(pipeline, num_workers=2, num_threads=4) as other:
        assert_equal_batches(rows_seen(other, 2), rows_seen(one, 2))
        assert other.stats()["filtered_samples"] == one.stats()["filtered_samples"] > 0


def test_a_bucket_is_read_with_its_secrets(s3_bucket: Bucket) -> None:
    """The options of a store go to the workers."""
    url = s3_bucket.put("a.tar", tar_bytes((f"{number:03d}", {"cls": b"1"}) for number in range(60)))
    source = stoker.tar(url, chunk_bytes=8192, storage_options=dict(s3_bucket.storage_options))
    pipeline = stoker.Pipeline(source, [ops.Label("cls")], batch_size=4, shuffle=True)
    with load(pipeline) as one, load(pipeline, num_workers=2) as other:
        assert_equal_batches(rows_seen(other), rows_seen(one))


@pytest.mark.parametrize("step", [0, 1, 6, 14, 15])
def test_a_state_goes_on_with_and_without_workers(shards: str, step: int) -> None:
    pipeline = pictures(shards)
    with load(pipeline) as loader:
        expected = rows_seen(loader, 2)
    for saved_by, loaded_by in ((2, 0), (0, 3)):
        with load(pipeline, num_workers=saved_by) as loader:
            list(islice(loader, step))
            state = loader.state_dict()
        with load(pipeline, num_workers=loaded_by) as loader:
            loader.load_state_dict(state)
            loader.set_epoch(0)
            assert_equal_batches(rows_seen(loader, 2), expected[step:])


def test_jumps_begin_anew(shards: str) -> None:
    """Skips, epochs that are chosen, and epochs that are broken off, in one loader after the other."""

    def journey(loader: stoker.DataLoader) -> Iterator[dict[str, Any]]:
        yield from islice(loader, 3)
        loader.set_epoch(4)
        loader.skip(5)
        state = loader.state_dict()
        yield from loader
        yield from islice(loader, 2)
        loader.load_state_dict(state)
        yield from islice(loader, 4)

    pipeline = pictures(shards)
    with load(pipeline) as one, load(pipeline, num_workers=2) as other:
        assert_equal_batches(list(journey(other)), list(journey(one)))


@pytest.mark.parametrize("on_error", ["replace", "drop"])
def test_bad_samples_become_what_they_become_in_threads(broken: str, on_error: Any, tmp_path: Path) -> None:
    pipeline = pictures(broken, on_error=on_error)
    found = []
    for num_workers in (0, 2):
        quarantine = tmp_path / f"quarantine-{num_workers}.jsonl"
        with load(pipeline, num_workers=num_workers, quarantine=quarantine) as loader:
            batches = rows_seen(loader, 2)
            stats = loader.stats()
        found.append((batches, quarantine.read_text(), stats["bad_samples"], stats["conversions"]))
    assert_equal_batches(found[1][0], found[0][0])
    assert found[1][1:] == found[0][1:]
    assert found[0][2] > 0


def _error_of(pipeline: stoker.Pipeline, num_workers: int) -> tuple[int, DataError]:
    """How many batches come before the error, and the error; it comes again if it is tried again."""
    batches: list[Any] = []
    with load(pipeline, num_workers=num_workers) as loader:
        with pytest.raises(DataError) as first:
            batches.extend(loader)
        loader.load_state_dict(loader.state_dict())
        with pytest.raises(DataError) as second:
            next(iter(loader))
    assert type(second.value) is type(first.value)
    return len(batches), first.value


def test_a_bad_sample_raises_what_it_raises_in_threads(broken: str) -> None:
    pipeline = pictures(broken, on_error="raise", batch_size=2)
    num_expected, expected = _error_of(pipeline, 0)
    num_found, found = _error_of(pipeline, 2)
    assert isinstance(found, SampleError)
    assert isinstance(expected, SampleError)
    assert (num_found, str(found), found.origin, found.op) == (
        num_expected,
        str(expected),
        expected.origin,
        expected.op,
    )


def test_the_cause_of_a_functions_error_comes_along(shards: str) -> None:
    def fail(sample: dict[str, Any]) -> dict[str, Any]:
        raise ZeroDivisionError(f"no {sample['cls']}")

    pipeline = pictures(shards, ops.Map(fail))
    (num_expected, expected), (num_found, found) = (_error_of(pipeline, num_workers) for num_workers in (0, 2))
    assert (num_found, str(found)) == (num_expected, str(expected))
    assert repr(found.__cause__) == repr(expected.__cause__)
    assert isinstance(found.__cause__, ZeroDivisionError)


def test_too_many_bad_samples_raise_what_they_raise_in_threads(broken: str) -> None:
    pipeline = pictures(broken, on_error="replace", max_bad=3)
    errors = []
    for num_workers in (0, 2):
        with load(pipeline, num_workers=num_workers) as loader, pytest.raises(TooManyBadSamplesError) as raised:
            list(loader)
        errors.append(str(raised.value))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("prefetch_bytes", [0, 256 << 20])
def test_the_death_of_workers_changes_nothing(
    shards: str, tmp_path: Path, prefetch_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Each worker that is there is killed in the middle of an epoch, and those that came for it in the next."""
    pipeline = pictures(shards, ops.Map(noting_pids(tmp_path)))
    with load(pictures(shards)) as loader:
        expected = rows_seen(loader, 3)
    found: list[dict[str, Any]] = []
    killed: set[int] = set()
    with (
        caplog.at_level(logging.WARNING, "stoker"),
        load(pipeline, num_workers=2, prefetch_bytes=prefetch_bytes) as loader,
    ):
        for _ in range(3):
            for step, batch in enumerate(loader):
                found.append(batch)
                if step == 5 and len(found) < 2 * len(loader):
                    wait_until(lambda: pids_in(tmp_path) - killed)  # noqa: B023  # it is over before the next step
                    alive = pids_in(tmp_path) - killed
                    for pid in alive:
                        os.kill(pid, signal.SIGKILL)
                    killed |= alive
    assert_equal_batches(found, expected)
    told = [record.message for record in caplog.records if "SIGKILL" in record.message]
    assert 2 <= len(told) <= len(killed)  # what is made already may last to the end, and a death is not seen before
    assert all("\n" not in line and any(f"(process {pid})" in line for pid in killed) for line in told)


def test_batches_are_the_users(shards: str) -> None:
    """A batch that is kept, or written to, is not changed by those made after it, nor by the end of the workers."""
    with load(pictures(shards), num_workers=2) as loader:
        kept = list(loader)
        copies = [{name: np.array(column) for name, column in batch.items()} for batch in kept]
        for batch in loader:
            batch["image"][:] = 0
    for batch, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(batch["image"], copy["image"])
