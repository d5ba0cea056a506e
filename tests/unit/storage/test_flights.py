"""One request for those who want the same range at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stoker.errors import TransientError
from stoker.storage.files import FileStore
from stoker.storage.flights import FlightStore

PATIENCE_S = 30.0


class Slow(FileStore):
    """Holds each read until it is told to go on; the first ``num_failing`` fail then."""

    def __init__(self, num_failing: int = 0) -> None:
        self.num_failing = num_failing
        self.num_reads = 0
        self.begun = threading.Semaphore(0)
        self.go = threading.Event()

    def read(self, url: str, start: int, stop: int, version: str = "") -> memoryview:
        self.num_reads += 1
        number = self.num_reads
        self.begun.release()
        assert self.go.wait(PATIENCE_S)
        if number <= self.num_failing:
            raise TransientError("not this time")
        return super().read(url, start, stop, version)


@pytest.fixture
def url(tmp_path: Path) -> str:
    (tmp_path / "a").write_bytes(bytes(range(100)))
    return f"file://{tmp_path}/a"


@pytest.mark.parametrize("num_failing", [0, 1])
def test_those_who_wait_get_the_bytes_of_one_read(num_failing: int, url: str) -> None:
    slow = Slow(num_failing)
    store = FlightStore(slow, PATIENCE_S)
    with ThreadPoolExecutor(4) as threads:
        leader = threads.submit(store.read, url, 10, 20)
        assert slow.begun.acquire(timeout=PATIENCE_S)
        others = [threads.submit(store.read, url, 10, 20) for _ in range(3)]
        apart = threads.submit(store.read, url, 10, 21)  # begins when one of the four threads is free
        slow.go.set()
        if num_failing:
            with pytest.raises(TransientError):
                leader.result(PATIENCE_S)
        else:
            assert bytes(leader.result(PATIENCE_S)) == bytes(range(10, 20))
        assert [bytes(other.result(PATIENCE_S)) for other in others] == [bytes(range(10, 20))] * 3
        assert bytes(apart.result(PATIENCE_S)) == bytes(range(10, 21))
    if not num_failing:
        assert slow.num_reads <= 5  # a thread that came late reads for itself


def test_a_range_is_read_again_once_the_flight_is_over(url: str) -> None:
    slow = Slow()
    slow.go.set()
    store = FlightStore(slow, PATIENCE_S)
    for _ in range(3):
        assert bytes(store.read(url, 0, 3)) == b"\0\1\2"
    assert slow.num_reads == 3


def test_patience_ends(url: str) -> None:
    slow = Slow()
    store = FlightStore(slow, 0.01)
    with ThreadPoolExecutor(2) as threads:
        leader = threads.submit(store.read, url, 0, 3)
        assert slow.begun.acquire(timeout=PATIENCE_S)
        other = threads.submit(store.read, url, 0, 3)
        assert slow.begun.acquire(timeout=PATIENCE_S)  # the other reads for itself
        slow.go.set()
        assert bytes(leader.result(PATIENCE_S)) == bytes(other.result(PATIENCE_S)) == b"\0\1\2"
