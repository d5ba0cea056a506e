"""Locks between openings of one file."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.storage.cache.locks import FileLocks

FAR = (1 << 63) - 2


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[FileLocks, FileLocks]]:
    path = tmp_path / "locks"
    path.touch()
    one, other = FileLocks(str(path)), FileLocks(str(path))
    yield one, other
    for each in (one, other):
        with contextlib.suppress(OSError):
            each.close()


def test_a_number_has_one_owner_at_a_time(two: tuple[FileLocks, FileLocks]) -> None:
    one, other = two
    for number in (0, FAR):
        assert one.try_lock(number)
        assert not other.try_lock(number)
        assert other.is_locked(number)
        assert not one.is_locked(number)
        one.unlock(number)
        assert other.try_lock(number)


def test_shared_locks_exclude_only_those_of_one(two: tuple[FileLocks, FileLocks]) -> None:
    one, other = two
    assert one.try_lock(5, shared=True)
    assert other.try_lock(5, shared=True)
    other.unlock(5)
    assert not other.try_lock(5)


def test_closing_frees(two: tuple[FileLocks, FileLocks]) -> None:
    one, other = two
    assert one.try_lock(5)
    one.close()
    assert other.try_lock(5)


def test_a_queue_waits_until_the_lock_is_free(two: tuple[FileLocks, FileLocks]) -> None:
    one, other = two
    assert one.try_lock(5)
    with contextlib.closing(other.queue()) as queue:
        thread = threading.Thread(target=one.unlock, args=(5,))
        thread.start()
        assert queue.lock(5, 10.0)
        thread.join()
        assert not one.try_lock(5)
    assert one.try_lock(5)


def test_a_queue_gives_up_in_time_and_keeps_nothing(two: tuple[FileLocks, FileLocks]) -> None:
    one, other = two
    assert one.try_lock(5)
    with contextlib.closing(other.queue()) as queue:
        assert queue.lock(4, 10.0)
        assert not queue.lock(5, 0.01)
    with contextlib.closing(one.queue()) as queue:
        assert queue.lock(4, 10.0)  # freed, though the other one is still waited for
    one.unlock(5)
    with contextlib.closing(one.queue()) as queue:
        assert queue.lock(5, 10.0)
