"""A buffer goes back when the last thing made from it is gone, and not before."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from stoker.batch import BufferPool

SIZE = 100_000


def test_a_buffer_is_used_again_once_it_is_free() -> None:
    pool = BufferPool()
    first = pool.take(SIZE)
    address = first.ctypes.data
    del first
    assert pool.take(SIZE).ctypes.data == address
    assert pool.stats.num_taken == 2
    assert pool.stats.num_reused == 1


@pytest.mark.parametrize(
    "keep",
    [
        lambda buffer: buffer[10:20].view(np.uint16)[1:],
        lambda buffer: torch.from_numpy(buffer)[5:6],
        lambda buffer: torch.from_numpy(buffer.view(np.uint16)).view(torch.bfloat16)[1:],
        lambda buffer: pa.py_buffer(buffer).slice(3, 4),
        lambda buffer: pa.Array.from_buffers(pa.uint8(), 4, [None, pa.py_buffer(buffer)]).slice(1),
        lambda buffer: memoryview(buffer)[1:2],
    ],
    ids=["view", "tensor", "tensor-of-other-dtype", "arrow-buffer", "arrow-array", "memoryview"],
)
def test_whatever_is_made_of_a_buffer_keeps_it(keep: Callable[[Any], Any]) -> None:
    pool = BufferPool()
    buffer = pool.take(SIZE)
    address = buffer.ctypes.data
    kept = [keep(buffer)]
    del buffer
    other = pool.take(SIZE)
    assert other.ctypes.data != address
    kept.clear()
    assert pool.take(SIZE).ctypes.data == address


@pytest.mark.parametrize("num_bytes", [0, 1, 63, 64, 4096, 1_000_003])
def test_buffers_are_aligned_writable_and_exactly_as_long(num_bytes: int) -> None:
    pool = BufferPool()
    buffers = [pool.take(num_bytes) for _ in range(5)]
    for i, buffer in enumerate(buffers):
        assert num_bytes == 0 or buffer.ctypes.data % 64 == 0
        assert len(buffer) == num_bytes
        buffer[:] = i
    assert all((buffer == i).all() for i, buffer in enumerate(buffers))  # they do not overlap


def test_a_buffer_of_another_size_is_not_handed_out() -> None:
    pool = BufferPool()
    del (buffer := [pool.take(SIZE)])[0]
    assert buffer == []
    assert len(pool.take(2 * SIZE)) == 2 * SIZE
    assert pool.stats.num_reused == 0


def test_idle_bytes_are_bounded_and_the_least_recently_used_goes_first() -> None:
    pool = BufferPool(max_idle_bytes=3 * SIZE)
    buffers = [pool.take(SIZE) for _ in range(4)]
    addresses = [buffer.ctypes.data for buffer in buffers]
    while buffers:
        del buffers[0]
    assert SIZE <= pool.stats.idle_bytes <= 3 * SIZE
    assert pool.take(SIZE).ctypes.data == addresses[-1]


def test_a_buffer_larger_than_the_bound_is_never_idle() -> None:
    pool = BufferPool(max_idle_bytes=SIZE)
    pool.take(10 * SIZE)
    assert pool.stats.idle_bytes == 0


def test_clear_gives_everything_back_and_leaves_what_is_in_use() -> None:
    pool = BufferPool()
    used = pool.take(SIZE)
    used[:] = 7
    pool.take(SIZE)
    assert pool.stats.idle_bytes > 0
    pool.clear()
    assert pool.stats.idle_bytes == 0
    assert (used == 7).all()


def test_two_thousand_kept_buffers_hold_no_descriptor() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    pool = BufferPool()
    kept = [torch.from_numpy(pool.take(200_000)) for _ in range(2000)]
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert len({tensor.data_ptr() for tensor in kept}) == 2000


def test_a_buffer_dropped_by_the_garbage_collector_inside_the_pool_does_not_lock_up() -> None:
    pool = BufferPool()

    class Cycle:
        def __init__(self) -> None:
            self.me = self
            self.buffer = pool.take(SIZE)

    Cycle()
    assert pool.stats.num_taken == 1
    with pool._lock:  # as if the collector ran in the middle of take()
        gc.collect()
    assert pool.take(SIZE) is not None
    assert pool.stats.num_reused == 1


def test_many_threads_never_share_a_buffer() -> None:
    pool = BufferPool(max_idle_bytes=20 * SIZE)
    wrong: list[Any] = []

    def work(mark: int) -> None:
        rng = np.random.default_rng(mark)
        for _ in range(300):
            buffers = [pool.take(int(size)) for size in rng.choice([SIZE, 2 * SIZE, 3 * SIZE], 3)]
            for buffer in buffers:
                buffer[::97] = mark
            wrong.extend(buffer for buffer in buffers if (buffer[::97] != mark).any())

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert pool.stats.num_reused > pool.stats.num_taken / 2
    assert pool.stats.idle_bytes <= 20 * SIZE
