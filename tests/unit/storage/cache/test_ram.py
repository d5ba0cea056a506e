"""Memory is counted as it is taken."""

from __future__ import annotations

from stoker.storage.cache.ram import RamTier
from stoker.storage.use import Use

SOON, LATE = Use("a", 0.0, 0.1), Use("a", 0.0, 0.9)


def name(number: int) -> bytes:
    return bytes([number]) * 32


def test_a_range_is_held_and_read() -> None:
    ram = RamTier(100, lambda: 0.0)
    assert ram.offer(name(1), memoryview(b"x" * 60), SOON) == (True, [])
    assert ram.read(name(1), LATE) == memoryview(b"x" * 60)
    assert ram.read(name(2), LATE) is None
    assert ram.held_bytes() == 60
    ram.close()


def test_what_goes_is_told_with_its_next_use() -> None:
    ram = RamTier(100, lambda: 0.0)
    ram.offer(name(1), memoryview(b"x" * 60), LATE)
    kept, gone = ram.offer(name(2), memoryview(b"y" * 60), SOON)
    assert kept
    assert [(each.digest, each.view, each.next_use) for each in gone] == [(name(1), memoryview(b"x" * 60), ("a", 0.9))]
    assert ram.held_bytes() == 60
    ram.close()


def test_what_is_farther_than_all_or_too_large_is_declined() -> None:
    ram = RamTier(100, lambda: 0.0)
    ram.offer(name(1), memoryview(b"x" * 60), SOON)
    assert ram.offer(name(2), memoryview(b"y" * 60), LATE) == (False, [])
    assert ram.offer(name(3), memoryview(b"z" * 101), SOON) == (False, [])
    ram.close()


def test_a_slice_does_not_keep_what_it_was_cut_from() -> None:
    ram = RamTier(10_000, lambda: 0.0)
    large = bytes(1_000_000)
    ram.offer(name(1), memoryview(large)[10:110], SOON)
    held = ram.read(name(1), SOON)
    assert held is not None
    assert isinstance(held.obj, bytes)
    assert len(held.obj) == 100 == ram.held_bytes()
    ram.close()


def test_whole_buffers_are_not_copied_and_counted_whole() -> None:
    ram = RamTier(10_000, lambda: 0.0)
    whole = bytes(1064)
    ram.offer(name(1), memoryview(whole)[64:], SOON)
    held = ram.read(name(1), SOON)
    assert held is not None
    assert held.obj is whole
    assert ram.held_bytes() == 1064
    ram.close()


def test_drop_and_close() -> None:
    ram = RamTier(100, lambda: 0.0)
    ram.offer(name(1), memoryview(b"x" * 60), SOON)
    ram.drop(name(1))
    ram.drop(name(2))
    assert ram.read(name(1), SOON) is None
    ram.close()
    assert ram.offer(name(1), memoryview(b"x" * 60), SOON) == (False, [])
    assert ram.held_bytes() == 0
