"""Threads for a burst of calls: results, cancellation, and leaving."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from stoker.storage.daemon_pool import DaemonPool

DEADLINE_S = 30.0


def names() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("pool-under-test")]


def test_results_come_in_order_from_few_threads() -> None:
    most = 0

    def square(number: int) -> int:
        nonlocal most
        most = max(most, len(names()))
        return number * number

    with DaemonPool(3, "pool-under-test") as pool:
        assert list(pool.map(square, range(100))) == [number * number for number in range(100)]
    assert 1 <= most <= 3
    assert names() == []


def test_calls_run_at_once() -> None:
    meeting = threading.Barrier(4, timeout=DEADLINE_S)
    with DaemonPool(4, "pool-under-test") as pool:
        assert len({future.result() for future in [pool.submit(meeting.wait) for _ in range(4)]}) == 4


def test_an_error_goes_to_who_asks() -> None:
    def fail() -> None:
        raise KeyError("mine")

    with DaemonPool(1, "pool-under-test") as pool:
        failing, working = pool.submit(fail), pool.submit(lambda: 1)
        with pytest.raises(KeyError, match="mine"):
            failing.result()
        assert working.result() == 1


def test_an_idle_pool_has_no_threads_and_starts_them_again() -> None:
    pool = DaemonPool(2, "pool-under-test")
    for _ in range(3):
        pool.submit(int).result()
        for thread in threading.enumerate():
            if thread.name.startswith("pool-under-test"):
                thread.join(DEADLINE_S)
        assert names() == []


def leave(pool: DaemonPool, call: Callable[[], object], reached: threading.Event) -> list[bool]:
    """Leave a block by an exception while ``call`` runs; tells for each of two futures whether it was cancelled."""
    futures: list[Future[Any]] = []
    try:
        with pool:
            futures = [pool.submit(call), pool.submit(int)]
            assert reached.wait(DEADLINE_S)
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        return [future.cancelled() for future in futures]


def test_an_exception_does_not_wait_for_who_hangs() -> None:
    reached, release = threading.Event(), threading.Event()

    def hang() -> None:
        reached.set()
        release.wait(DEADLINE_S)

    pool = DaemonPool(1, "pool-under-test")
    assert leave(pool, hang, reached) == [False, True]
    (name,) = names()
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == name)
    release.set()
    pool.shutdown()
    assert names() == []


def test_a_pool_that_was_shut_down_takes_nothing() -> None:
    pool = DaemonPool(1, "pool-under-test")
    pool.shutdown()
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(int)
