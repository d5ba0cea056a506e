"""Memory that a worker lent: returned once, when the last view is gone, and never by a forked child."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from stoker.memory.arena import Arena
from stoker.processes.lent import LentMemory


@pytest.fixture
def arena() -> Iterator[Arena]:
    made = Arena.create(16 << 20)
    yield made
    made.close()


@pytest.fixture
def memory(arena: Arena) -> LentMemory:
    return LentMemory.of(os.dup(arena.fd))


def test_both_sides_see_the_same_bytes(arena: Arena, memory: LentMemory) -> None:
    block = arena.allocate(10_000)
    assert block is not None
    offset = arena.offset_at(block.ctypes.data, 10_000)
    assert offset is not None
    lent = memory.lend(offset, 10_000)
    block[:] = 3
    assert lent.min() == lent.max() == 3
    lent[5] = 9
    assert block[5] == 9


def test_the_descriptor_is_closed_whether_or_not_it_can_be_mapped(arena: Arena) -> None:
    fd = os.dup(arena.fd)
    kept = LentMemory.of(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    del kept
    readable, writable = os.pipe()
    with pytest.raises((OSError, ValueError)):
        LentMemory.of(readable)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(readable)
    os.close(writable)


def test_only_the_end_of_the_last_view_returns_an_offset(memory: LentMemory) -> None:
    lent = memory.lend(65536, 4096)
    tensor = torch.from_numpy(lent.view(np.float32)[10:20])
    row = tensor[2:3]
    del lent, tensor
    gc.collect()
    assert memory.take_returned() == []
    del row
    assert memory.take_returned() == [65536]
    assert memory.take_returned() == []


def test_an_offset_that_was_lent_twice_is_returned_twice(memory: LentMemory) -> None:
    first, second = memory.lend(65536, 100), memory.lend(65536, 100)
    del first
    assert memory.take_returned() == [65536]
    del second
    assert memory.take_returned() == [65536]


def test_views_may_be_dropped_in_any_thread(memory: LentMemory) -> None:
    kept = [memory.lend(65536 + 4096 * i, 4096) for i in range(64)]
    dropper = threading.Thread(target=kept.clear)
    dropper.start()
    dropper.join()
    assert sorted(memory.take_returned()) == [65536 + 4096 * i for i in range(64)]


def test_views_outlive_the_memory_and_its_worker(arena: Arena) -> None:
    block = arena.allocate(4096)
    assert block is not None
    block[:] = 5
    offset = arena.offset_at(block.ctypes.data, 4096)
    assert offset is not None
    memory = LentMemory.of(os.dup(arena.fd))
    lent = memory.lend(offset, 4096)
    arena.close()
    del memory, block
    gc.collect()
    assert lent.min() == 5


@pytest.mark.parametrize("offset, num_bytes", [(-1, 10), (0, 0), (0, 1 << 40), ((16 << 20) * 5, 1 << 20)])
def test_a_range_outside_is_refused(memory: LentMemory, offset: int, num_bytes: int) -> None:
    with pytest.raises(ValueError, match="are not in a memory of"):
        memory.lend(offset, num_bytes)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_returns_nothing(memory: LentMemory) -> None:
    lent = memory.lend(65536, 4096)
    pid = os.fork()
    if pid == 0:
        del lent
        os._exit(len(memory.take_returned()))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert memory.take_returned() == []
    del lent
    assert memory.take_returned() == [65536]
