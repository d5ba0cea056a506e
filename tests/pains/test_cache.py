"""A cache on disk fills no disk, deletes nobody's data, and serves two jobs with one read (pains 54, 55, 56)."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from stoker.errors import SpecError
from stoker.storage.cache import CacheOptions, ChunkCache
from stoker.storage.store import ObjectRange
from stoker.storage.use import Use
from support import cache_process
from support.cache_process import full_disk
from support.caching import Origin, body, bytes_in, files_in, ranges, stored

MIB = 1 << 20


def uses(num: int, now: float = 0.0) -> list[Use]:
    return [Use("job", now, now + 1)] * num


# 54: fills the disk, evicts late, races between processes, unclear errors, inodes run out


def test_four_processes_at_once_keep_a_budget_that_is_small_against_the_ranges(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    num_bytes = 3 * max(cache_process.SIZES)
    readers = [cache_process.start("read", folder, num_bytes, seed, f"job {seed}") for seed in range(4)]
    while any(each.poll() is None for each in readers):
        assert bytes_in(folder) <= num_bytes
    assert all(cache_process.result(each) > 0 for each in readers)
    assert 0 < bytes_in(folder) <= num_bytes


def test_files_are_bounded_as_bytes_are(tmp_path: Path) -> None:
    cache = ChunkCache(CacheOptions(str(tmp_path / "cache"), disk_bytes=MIB, max_files=5, reserve_bytes=0))
    cache.read(ranges([100] * 40), uses(40), Origin())
    assert len(files_in(tmp_path / "cache")) == 5
    cache.close()


def test_the_reserve_stays_free(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    cache = ChunkCache(CacheOptions(str(tmp_path / "cache"), disk_bytes=MIB, reserve_bytes=free + 100 * MIB))
    wanted = ranges([1000] * 3)
    assert cache.read(wanted, uses(3), Origin()) == [body(each) for each in wanted]
    assert not files_in(tmp_path / "cache")
    assert cache.stats().declined == 3
    assert cache.stats().errors == 0
    cache.close()


def test_a_full_disk_is_only_slower(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = ChunkCache(CacheOptions(str(tmp_path / "cache"), disk_bytes=10 * MIB, reserve_bytes=0))
    wanted = ranges([200_000] * 4)
    with full_disk(100_000):
        for _ in range(2):
            assert cache.read(wanted, uses(4), Origin()) == [body(each) for each in wanted]
    assert not files_in(tmp_path / "cache")
    assert cache.stats().errors > 0
    assert cache.stats().held_disk_bytes == 0
    assert len([each for each in caplog.records if each.levelno >= logging.WARNING]) == 1
    cache.close()


def test_a_budget_that_cannot_be_says_what_is_needed(tmp_path: Path) -> None:
    total = shutil.disk_usage(tmp_path).total
    with pytest.raises(SpecError, match=r"disk_bytes of at most [\d,]+, or a folder on a disk of at least"):
        ChunkCache(CacheOptions(str(tmp_path / "cache"), disk_bytes=total + 1))


def test_a_range_larger_than_the_budget_says_what_is_needed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = ChunkCache(CacheOptions(str(tmp_path / "cache"), disk_bytes=1000, reserve_bytes=0))
    wanted = ranges([5000])
    for _ in range(3):
        assert cache.read(wanted, uses(1), Origin()) == [body(wanted[0])]
    assert [each for each in caplog.messages if "cannot keep a range of 5,064 bytes: its budget is 1,000" in each]
    assert len(caplog.messages) == 1
    cache.close()


# 55: eviction deletes the only copy of local data


def test_local_sources_are_never_touched(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    content = {data / f"{i}.tar": f"only copy {i}".encode() * 100 for i in range(10)}
    for path, text in content.items():
        path.write_bytes(text)
    local = [ObjectRange(f"file://{path}", 0, len(text), "mtime") for path, text in content.items()]
    remote = ranges([2000] * 10)
    texts = dict(zip(local, content.values(), strict=True))

    def load(wanted: Sequence[ObjectRange]) -> list[memoryview]:
        return [memoryview(texts.get(each) or body(each)) for each in wanted]

    for cache_files in (False, True):
        folder = tmp_path / f"cache {cache_files}"
        cache = ChunkCache(
            CacheOptions(str(folder), disk_bytes=stored([2000]) * 2, reserve_bytes=0, cache_files=cache_files)
        )
        for epoch in range(3):
            for some in zip(local, remote, strict=True):
                found = cache.read(some, uses(2, epoch), load)
                assert found == [texts[some[0]], body(some[1])]
        assert bytes_in(folder) > 0
        cache.close()
    assert {path: path.read_bytes() for path in data.iterdir()} == content


def test_a_folder_with_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.tar").write_bytes(b"only copy")
    with pytest.raises(SpecError, match=r"expected an empty folder .*train\.tar.*Give a folder of its own"):
        ChunkCache(CacheOptions(str(tmp_path)))
    assert [each.name for each in tmp_path.iterdir()] == ["train.tar"]


def test_a_folder_that_only_looks_like_a_cache_is_refused(tmp_path: Path) -> None:
    (tmp_path / "STOKER_CACHE").write_text("something else")
    with pytest.raises(SpecError, match="does not say that this version of Stoker made the folder"):
        ChunkCache(CacheOptions(str(tmp_path)))


# 56: two jobs on one data set and disk refuse or corrupt each other


def test_two_jobs_in_step_read_the_origin_once(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    jobs = [cache_process.start("read", folder, 10_000_000, 1, f"job {number}") for number in range(2)]
    assert sum(cache_process.result(each) for each in jobs) == cache_process.NUM_RANGES
