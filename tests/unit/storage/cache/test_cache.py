"""One flight, errors that pass, forks, and what is never kept."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stoker.errors import TransientError
from stoker.storage.cache import CacheOptions, CacheStats, ChunkCache
from stoker.storage.cache.key import digest_of
from stoker.storage.store import ObjectRange
from stoker.storage.use import NEVER, Use
from support.caching import Origin, body, ranges

DEADLINE_S = 30.0
WANTED = ranges([1000] * 8)
USE = Use("job", 0.0, 0.5)

Open = Callable[..., ChunkCache]


@pytest.fixture(params=["ram", "disk", "both"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Caches that share what they can."""
    made: list[ChunkCache] = []

    def open_one(**more: float) -> ChunkCache:
        folder = None if request.param == "ram" else str(tmp_path / "cache")
        ram_bytes = 0 if request.param == "disk" else 100_000
        options = CacheOptions(folder, disk_bytes=100_000, ram_bytes=ram_bytes, reserve_bytes=0)
        made.append(ChunkCache(options, **more))  # type: ignore[arg-type]
        return made[-1]

    yield open_one
    for each in made:
        each.close()


@pytest.fixture
def cache(opened: Open) -> ChunkCache:
    return opened()


def read(
    cache: ChunkCache, wanted: Sequence[ObjectRange], load: Callable[..., Sequence[memoryview]]
) -> list[memoryview]:
    found = cache.read(wanted, [USE] * len(wanted), load)
    assert found == [body(each) for each in wanted]
    return found


def is_wanted(cache: ChunkCache, wanted: ObjectRange) -> bool:
    """Whether a job has told that it reads the range."""
    disk = cache._tiers.disk
    assert disk is not None
    assert disk._opened is not None
    with disk._opened.ledger.transaction(time.time()) as ledger:
        return ledger.until_s(digest_of(wanted)) < math.inf


class Gate:
    """A load that says when it has begun, and goes on when told."""

    def __init__(self) -> None:
        self.origin = Origin()
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, wanted: Sequence[ObjectRange]) -> list[memoryview]:
        self.begun.set()
        assert self.go_on.wait(DEADLINE_S)
        return self.origin(wanted)


def test_a_range_is_loaded_once(cache: ChunkCache) -> None:
    origin = Origin()
    read(cache, WANTED, origin)
    read(cache, WANTED[::-1], origin)
    read(cache, [WANTED[3], WANTED[3]], origin)
    assert (origin.num_calls, origin.loads.total()) == (1, 8)
    stats = cache.stats()
    assert stats.misses == 8
    assert stats.hits_ram + stats.hits_disk == 9
    assert stats.bytes_missed == 8000


def test_a_call_loads_all_that_is_missing_at_once_and_in_order(cache: ChunkCache) -> None:
    origin = Origin()
    read(cache, [WANTED[1], WANTED[4]], origin)
    calls: list[Sequence[ObjectRange]] = []

    def load(wanted: Sequence[ObjectRange]) -> list[memoryview]:
        calls.append(wanted)
        return origin(wanted)

    read(cache, WANTED[:6], load)
    assert calls == [[WANTED[0], WANTED[2], WANTED[3], WANTED[5]]]


def test_views_are_read_only_and_stay_when_the_cache_is_closed(cache: ChunkCache) -> None:
    views = read(cache, WANTED, lambda wanted: [memoryview(bytearray(body(each))) for each in wanted])
    again = read(cache, WANTED, Origin())
    cache.close()
    assert all(each.readonly for each in [*views, *again])
    assert again == [body(each) for each in WANTED]
    read(cache, WANTED, Origin())  # goes on without


def test_what_has_no_version_is_a_local_file_or_empty_is_never_kept(cache: ChunkCache, tmp_path: Path) -> None:
    plain = [
        ObjectRange("s3://bucket/a", 0, 10),
        ObjectRange(f"file://{tmp_path}/a", 0, 10, "v1"),
        ObjectRange("s3://bucket/b", 5, 5, "v1"),
    ]
    origin = Origin()
    for _ in range(2):
        read(cache, [*plain, WANTED[0]], origin)
    assert [origin.loads[each] for each in plain] == [2, 2, 2]
    assert cache.stats().misses == 1


def test_errors_of_a_load_pass_and_the_next_call_loads(cache: ChunkCache) -> None:
    def fail(wanted: Sequence[ObjectRange]) -> list[memoryview]:
        raise TransientError("no network")

    with pytest.raises(TransientError, match="no network"):
        cache.read(WANTED, [USE] * 8, fail)
    read(cache, WANTED, Origin())


def test_threads_that_miss_the_same_ranges_load_them_once(opened: Open) -> None:
    caches = [opened(), opened()]
    gate = Gate()
    num = 8
    with ThreadPoolExecutor(num) as pool:
        same = caches if caches[0]._tiers.disk is not None else caches[:1]
        reads = [pool.submit(read, same[i % len(same)], WANTED, gate) for i in range(num)]
        assert gate.begun.wait(DEADLINE_S)
        gate.go_on.set()
        for each in reads:
            each.result(DEADLINE_S)
    assert set(gate.origin.loads.values()) == {1}


@pytest.fixture
def interleaved() -> Iterator[None]:
    """Threads change over as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("interleaved")
def test_sets_that_overlap_do_not_wait_in_a_circle(opened: Open) -> None:
    caches = [opened(wait_s=2 * DEADLINE_S) for _ in range(2)]  # who waits in a circle comes too late
    many = ranges([1000] * 40)
    orders = [many, many[::-1], many[20:] + many[:20], many[::2] + many[1::2]]
    origin = Origin()
    start = threading.Barrier(8, timeout=DEADLINE_S)

    def read_at_once(cache: ChunkCache, wanted: Sequence[ObjectRange]) -> None:
        start.wait()
        read(cache, wanted, origin)

    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            for each in many:
                caches[0].drop(each)
                caches[1].drop(each)
            reads = [pool.submit(read_at_once, caches[i % 2], orders[i // 2]) for i in range(8)]
            for one in reads:
                one.result(DEADLINE_S)


def test_a_load_that_fails_in_one_thread_is_done_by_the_other(cache: ChunkCache) -> None:
    gate = Gate()

    def fail(wanted: Sequence[ObjectRange]) -> list[memoryview]:
        gate(wanted)
        raise TransientError("no network")

    with ThreadPoolExecutor(2) as pool:
        failing = pool.submit(cache.read, WANTED, [USE] * 8, fail)
        assert gate.begun.wait(DEADLINE_S)
        waiting = pool.submit(read, cache, WANTED, Origin())
        gate.go_on.set()
        waiting.result(DEADLINE_S)
        assert isinstance(failing.exception(DEADLINE_S), TransientError)


def test_a_wait_has_a_deadline(opened: Open) -> None:
    first, second = opened(wait_s=0.01), opened(wait_s=0.01)
    gate = Gate()
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(read, first, WANTED, gate)
        assert gate.begun.wait(DEADLINE_S)
        read(first, WANTED[:2], Origin())
        read(second, WANTED[2:4], Origin())
        gate.go_on.set()
        slow.result(DEADLINE_S)
    read(second, WANTED, Origin())


def test_what_is_waited_for_is_kept_although_its_loader_would_not(tmp_path: Path) -> None:
    options = CacheOptions(str(tmp_path / "cache"), disk_bytes=1064, reserve_bytes=0)
    first, second = ChunkCache(options), ChunkCache(options)
    first.read(WANTED[:1], [Use("first", 0.0, 0.2)], Origin())
    gate = Gate()
    origin = Origin()
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(first.read, WANTED[1:2], [Use("first", 0.0, NEVER)], gate)
        assert gate.begun.wait(DEADLINE_S)
        other = pool.submit(second.read, WANTED[1:2], [Use("second", 0.0, NEVER)], origin)
        while not is_wanted(first, WANTED[1]):  # until it waits
            assert not other.done()
        gate.go_on.set()
        assert slow.result(DEADLINE_S) == other.result(DEADLINE_S) == [body(WANTED[1])]
    assert origin.num_calls == 0
    first.close()
    second.close()


def test_drop_forgets(cache: ChunkCache) -> None:
    origin = Origin()
    read(cache, WANTED, origin)
    cache.drop(WANTED[2])
    cache.drop(ObjectRange("s3://bucket/unknown", 0, 1, "v"))
    read(cache, WANTED, origin)
    assert origin.loads[WANTED[2]] == 2
    assert origin.loads.total() == 9


def test_bring_loads_only_what_is_not_here(cache: ChunkCache) -> None:
    origin = Origin()
    read(cache, WANTED[:3], origin)
    cache.bring([*WANTED, ObjectRange("s3://bucket/a", 0, 10)], [USE] * 9, origin)
    assert origin.loads.total() == 8
    read(cache, WANTED, origin)
    assert origin.loads.total() == 8
    assert cache.budget_bytes in {100_000, 200_000}


def test_what_was_read_ahead_stays_until_it_is_read(opened: Open, tmp_path: Path) -> None:
    cache = ChunkCache(CacheOptions(str(tmp_path / "small"), disk_bytes=2 * 1064, reserve_bytes=0))
    origin = Origin()
    cache.read(WANTED[:1], [Use("job", 0.0, 0.1)], origin)
    for i in range(1, 8):
        cache.read(WANTED[i : i + 1], [Use("job", 0.01 * i, 1.0 + i)], origin)
    assert cache.read(WANTED[:1], [Use("job", 0.1, 1.1)], origin) == [body(WANTED[0])]
    assert origin.loads[WANTED[0]] == 1
    cache.close()


def test_memory_gives_to_the_disk_what_it_has_no_room_for(tmp_path: Path) -> None:
    options = CacheOptions(str(tmp_path / "cache"), disk_bytes=4 * 1064, ram_bytes=4000, reserve_bytes=0)
    cache = ChunkCache(options)
    origin = Origin()
    for epoch in range(3):
        for i, wanted in enumerate(WANTED):
            cache.read([wanted], [Use("job", epoch + i / 8, epoch + 1 + i / 8)], origin)
    # Eight fit both together; while the disk had room it took some that memory has too.
    assert origin.loads.total() < 8 * 3 - 8
    assert cache.stats().held_ram_bytes == 4000
    cache.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_goes_on_though_another_thread_was_reading(cache: ChunkCache) -> None:
    read(cache, WANTED[:2], Origin())
    gate = Gate()
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(read, cache, WANTED[2:], gate)
        assert gate.begun.wait(DEADLINE_S)
        child = os.fork()
        if child == 0:
            cache._wait_s = 0.01
            try:
                read(cache, WANTED, Origin())
                read(cache, WANTED, Origin())
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        gate.go_on.set()
        slow.result(DEADLINE_S)
    read(cache, WANTED, Origin())


def test_stats_add_up_and_are_plain() -> None:
    one = CacheStats(hits_ram=1, bytes_missed=5)
    assert (one + CacheStats(hits_ram=2, errors=3)) == CacheStats(hits_ram=3, bytes_missed=5, errors=3)
    assert one.as_dict()["bytes_missed"] == 5
