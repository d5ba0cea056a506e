"""Memory of an arena: bounded, given back, found again by address."""

from __future__ import annotations

import errno
import fcntl
import gc
import mmap
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from stoker.batch import BufferPool, to_torch
from stoker.memory.arena import PAGE_BYTES, Arena
from support.batch_kinds import pictures

MAX_BYTES = 4 << 20


@pytest.fixture
def arena() -> Iterator[Arena]:
    made = Arena.create(MAX_BYTES)
    yield made
    made.close()


def resident_bytes(arena: Arena) -> int:
    return os.fstat(arena.fd).st_blocks * 512


def test_what_is_written_is_in_the_file(arena: Arena) -> None:
    block = arena.allocate(10_000)
    assert block is not None
    block[:] = 7
    offset = arena.offset_of(pa.py_buffer(block[100:200]))
    assert offset is not None
    assert os.pread(arena.fd, 100, offset) == bytes([7]) * 100


def test_memory_that_was_never_touched_costs_nothing(arena: Arena) -> None:
    assert arena.allocate(MAX_BYTES) is not None
    assert resident_bytes(arena) == 0


def test_a_block_is_free_when_everything_made_of_it_is_gone(arena: Arena) -> None:
    block = arena.allocate(1 << 20)
    assert block is not None
    block[:] = 1
    kept = pa.py_buffer(block[5:]).slice(3)
    del block
    gc.collect()
    assert arena.used_bytes == 1 << 20
    assert kept.to_pybytes()[:3] == b"\1\1\1"
    del kept
    gc.collect()
    assert arena.used_bytes == 0
    assert resident_bytes(arena) == 0


def test_no_more_than_the_bound_is_in_use(arena: Arena) -> None:
    blocks = [arena.allocate(1 << 20) for _ in range(4)]
    assert all(block is not None for block in blocks)
    assert arena.allocate(1) is None
    blocks.pop()
    assert arena.allocate(1 << 20) is not None


def test_scattered_blocks_do_not_bar_a_large_one(arena: Arena) -> None:
    blocks = [arena.allocate(1 << 18) for _ in range(16)]
    del blocks[::2]
    assert arena.allocate(2 << 20) is not None


def test_a_block_keeps_its_bytes_after_close() -> None:
    arena = Arena.create(MAX_BYTES)
    block = arena.allocate(PAGE_BYTES)
    assert block is not None
    block[:] = 3
    arena.close()
    arena.close()
    assert (block == 3).all()
    assert arena.allocate(1) is None
    del block
    assert arena.used_bytes == 0


def test_buffers_of_other_memory_have_no_offset(arena: Arena) -> None:
    assert arena.offset_of(pa.py_buffer(bytes(100))) is None
    assert arena.offset_of(pa.py_buffer(b"")) is None


def test_no_descriptor_is_held_after_close() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    arena = Arena.create(MAX_BYTES)
    block = arena.allocate(10)
    arena.close()
    del arena, block
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_nobody_can_shrink_it_and_readers_cannot_write(arena: Arena) -> None:
    with pytest.raises(PermissionError):
        os.ftruncate(arena.fd, 0)
    fd = arena.read_only_fd()
    try:
        assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        with pytest.raises(OSError):
            os.pwrite(fd, b"x", 0)
        with pytest.raises(PermissionError):
            mmap.mmap(fd, PAGE_BYTES)
    finally:
        os.close(fd)


def test_batches_are_built_in_it_by_a_pool(arena: Arena) -> None:
    pool = BufferPool(max_idle_bytes=MAX_BYTES, allocate=arena.allocate)
    batch = pictures(20, pool)
    pixels = batch.column("image").storage.values.buffers()[1]
    assert arena.offset_of(pixels) is not None
    kept = to_torch(batch)["image"]
    del batch, pixels
    assert (kept[3] == 3).all()
    del kept
    gc.collect()
    assert pool.stats.idle_bytes > 0  # warm, and in use as the arena sees it
    assert arena.used_bytes > 0
    pool.clear()
    assert arena.used_bytes == 0


def test_a_pool_takes_ordinary_memory_for_what_does_not_fit_and_does_not_keep_it(arena: Arena) -> None:
    pool = BufferPool(allocate=arena.allocate)
    large = pool.take(2 * MAX_BYTES)
    large[:] = 1
    assert arena.offset_of(pa.py_buffer(large)) is None
    del large
    assert pool.stats.idle_bytes == 0
    assert arena.offset_of(pa.py_buffer(pool.take(MAX_BYTES // 2))) is not None


def test_idle_blocks_of_a_pool_make_room_for_those_of_another_size(arena: Arena) -> None:
    pool = BufferPool(allocate=arena.allocate)
    pool.take(3 << 20)
    assert pool.stats.idle_bytes > 0
    assert arena.offset_of(pa.py_buffer(pool.take(2 << 20))) is not None


def test_threads_never_share_memory(arena: Arena) -> None:
    wrong: list[int] = []

    def work(mark: int) -> None:
        rng = np.random.default_rng(mark)
        for size in rng.integers(1, 300_000, 200):
            block = arena.allocate(int(size))
            if block is not None:
                block[::64] = mark
                if (block[::64] != mark).any():
                    wrong.append(mark)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert arena.used_bytes == 0
    assert resident_bytes(arena) == 0


def test_a_block_dropped_by_the_collector_inside_the_arena_does_not_lock_up(arena: Arena) -> None:
    class Cycle:
        def __init__(self) -> None:
            self.me = self
            self.block = arena.allocate(PAGE_BYTES)

    Cycle()
    with arena._lock:  # as if the collector ran in the middle of allocate()
        gc.collect()
    assert arena.used_bytes == 0


def test_a_forked_child_gets_no_memory_of_its_parent(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert arena.allocate(1) is None


def test_a_system_without_memfd_is_an_os_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(OSError, match="no memfd_create"):
        Arena.create(MAX_BYTES)


def test_a_file_that_may_not_grow_is_an_os_error(monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))

    def full(fd: int, size: int) -> None:
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr(os, "ftruncate", full)
    with pytest.raises(OSError, match="File too large"):
        Arena.create(MAX_BYTES)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_too_little_address_space_is_an_os_error() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 40, hard))
    try:
        with pytest.raises(OSError, match="no shared memory of"):
            Arena.create(1 << 39)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_a_size_beyond_all_files_is_an_os_error() -> None:
    with pytest.raises(OSError, match="no shared memory of"):
        Arena.create(1 << 62)
