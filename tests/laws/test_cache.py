"""A cache never gives wrong bytes, keeps its budget, and does as well as can be done."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.storage.cache import CacheOptions, ChunkCache
from stoker.storage.use import Use
from support import cache_process
from support.caching import Clock, Origin, body, bytes_in, job, optimum, ranges, stored

NUM_RANGES = 100
BUDGETS = (0.1, 0.25, 0.5, 0.9)


def hit_rate(cache: ChunkCache, reads: list[tuple[int, Use]], sizes: list[int], clock: Clock, first: int) -> float:
    """Of the bytes from read ``first`` on."""
    wanted = ranges(sizes)
    origin = Origin()
    num_bytes = num_missed = 0
    for place, (index, use) in enumerate(reads):
        clock.at_s += 1.0
        before = cache.stats().bytes_missed
        assert cache.read([wanted[index]], [use], origin) == [body(wanted[index])]
        if place >= first:
            num_bytes += sizes[index]
            num_missed += cache.stats().bytes_missed - before
    return 1 - num_missed / num_bytes


@pytest.mark.parametrize("fraction", BUDGETS)
@pytest.mark.parametrize("tier", ["ram", "disk"])
def test_the_hit_rate_is_the_budget_and_beladys_optimum(tmp_path: Path, tier: str, fraction: float) -> None:
    sizes = [1000] * NUM_RANGES
    num_entries = round(fraction * NUM_RANGES)
    options = {
        "ram": CacheOptions(ram_bytes=sum(sizes[:num_entries])),
        "disk": CacheOptions(str(tmp_path / "cache"), disk_bytes=stored(sizes[:num_entries]), reserve_bytes=0),
    }[tier]
    clock = Clock()
    cache = ChunkCache(options, clock=clock)
    reads = list(job("a", NUM_RANGES, 4, seed=7))

    found = hit_rate(cache, reads, sizes, clock, NUM_RANGES)

    cache.close()
    best = optimum([index for index, _ in reads], num_entries, NUM_RANGES)
    assert found >= fraction - 1e-9
    assert found >= best - 0.02


@pytest.mark.parametrize("fraction", BUDGETS)
def test_the_hit_rate_is_the_budget_for_ranges_of_unequal_sizes(fraction: float) -> None:
    chance = random.Random(3)
    sizes = [chance.choice([200, 500, 1000, 4000]) for _ in range(300)]
    clock = Clock()
    cache = ChunkCache(CacheOptions(ram_bytes=int(fraction * sum(sizes))), clock=clock)

    found = hit_rate(cache, list(job("a", 300, 3, seed=8)), sizes, clock, 300)

    assert found >= fraction - max(sizes) / sum(sizes)  # the last range may not fit
    cache.close()


@pytest.mark.parametrize("fraction", BUDGETS)
def test_two_jobs_share_a_disk_as_well_as_can_be(tmp_path: Path, fraction: float) -> None:
    sizes = [1000] * NUM_RANGES
    num_entries = round(fraction * NUM_RANGES)
    options = CacheOptions(str(tmp_path / "cache"), disk_bytes=stored(sizes[:num_entries]), reserve_bytes=0)
    clock = Clock()
    cache = ChunkCache(options, clock=clock)
    both = [job("a", NUM_RANGES, 4, seed=1), job("b", NUM_RANGES, 4, seed=2)]
    reads = list(itertools.chain.from_iterable(zip(*both, strict=True)))
    first = 2 * NUM_RANGES

    found = hit_rate(cache, reads, sizes, clock, first)

    cache.close()
    assert found >= fraction
    assert found >= optimum([index for index, _ in reads], num_entries, first) - 0.02


def test_two_jobs_in_two_processes_read_the_origin_once(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    jobs = [cache_process.start("read", folder, 10_000_000, seed, f"job {seed}") for seed in (1, 2)]
    loads = [cache_process.result(each) for each in jobs]
    assert sum(loads) == cache_process.NUM_RANGES
    assert bytes_in(folder) == stored(cache_process.SIZES)


def test_a_process_may_be_killed_at_any_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "support.cache_process", "crash", str(tmp_path / "cache")],
        env=cache_process.environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "crashes" in done.stdout


def test_writers_that_are_killed_leave_no_wrong_bytes_and_lose_no_budget(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    num_bytes = stored(cache_process.SIZES) // 3
    chance = random.Random(11)
    for _ in range(2):
        writers = [cache_process.start("write", folder, num_bytes, chance.random(), "job") for _ in range(4)]
        for each in writers:
            for _ in range(chance.randrange(5, 60)):
                assert each.stdout is not None
                assert each.stdout.readline() == "read\n"
                assert bytes_in(folder) <= num_bytes
            each.kill()
        for each in writers:
            each.communicate()
        cache_process.check(folder, num_bytes)
