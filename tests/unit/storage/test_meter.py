"""Counts of requests, alone and round a store."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from stoker.errors import NotFoundError, StorageError
from stoker.storage.meter import Meter, StorageStats
from stoker.storage.metered import MeteredStore
from stoker.storage.retry import CorruptAnswerError, CutAnswerError, ThrottledError
from stoker.storage.store import ObjectInfo


@dataclass
class Scripted:
    """Every call gives or raises the next answer, and takes ``call_s`` of the time it keeps."""

    answers: list[bytes | Exception]
    call_s: float = 0.25
    now_s: float = 0.0
    versions: list[str] = field(default_factory=list)

    def head(self, url: str) -> ObjectInfo:
        return ObjectInfo(url, len(self._next()), "v")

    def list(self, prefix: str, *, max_depth: int | None = None) -> Iterator[ObjectInfo]:
        yield ObjectInfo(f"{prefix}{max_depth}", len(self._next()), "v")

    def peek(self, folder: str) -> Sequence[str]:
        return [folder + self._next().decode()]

    def read(self, url: str, start: int, stop: int, version: str = "") -> memoryview:
        self.versions.append(version)
        return memoryview(self._next())

    def write(self, url: str, payload: bytes) -> None:
        self._next()

    def _next(self) -> bytes:
        self.now_s += self.call_s
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def metered(answers: list[bytes | Exception]) -> tuple[MeteredStore, Meter, Scripted]:
    inner, meter = Scripted(answers), Meter()
    return MeteredStore(inner, meter, clock=lambda: inner.now_s), meter, inner


def test_good_reads_are_counted_with_their_bytes_and_latency() -> None:
    store, meter, inner = metered([b"abc", b"defg"])
    assert (bytes(store.read("u", 0, 3, "v1")), bytes(store.read("u", 3, 7))) == (b"abc", b"defg")
    stats = meter.stats()
    assert (stats.requests, stats.bytes, stats.latencies.total) == (2, 7, 2)
    assert stats.latency_p50_s == stats.latency_p99_s == pytest.approx(0.25, rel=0.05)
    assert inner.versions == ["v1", ""]


@pytest.mark.parametrize(
    "error, expected",
    [
        (NotFoundError("gone"), StorageStats(requests=1)),
        (ThrottledError("HTTP 503"), StorageStats(requests=1, throttled=1)),
        (CorruptAnswerError("MD5"), StorageStats(requests=1, corrupt=1)),
        (CutAnswerError("cut", memoryview(b"abcd"), "v"), StorageStats(requests=1, bytes=4)),
    ],
)
def test_failed_reads_are_counted_by_their_kind_without_a_latency(error: Exception, expected: StorageStats) -> None:
    store, meter, _ = metered([error])
    with pytest.raises(StorageError) as caught:
        store.read("u", 0, 9)
    assert caught.value is error
    assert meter.stats() == expected


def test_everything_else_is_counted_and_passed_on() -> None:
    store, meter, _ = metered([b"12", b"1", b"x", b"", ThrottledError("HTTP 429")])
    assert store.head("u").size_bytes == 2
    assert list(store.list("p", max_depth=3)) == [ObjectInfo("p3", 1, "v")]
    assert store.peek("f/") == ["f/x"]
    store.write("u", b"payload")
    with pytest.raises(ThrottledError):
        store.head("u")
    assert meter.stats() == StorageStats(requests=5, throttled=1)


def test_stats_of_several_meters_add_up_with_their_histograms() -> None:
    fast, slow = Meter(), Meter()
    for _ in range(99):
        fast.answered(10, 0.001)
    for _ in range(3):
        slow.answered(10, 1.0)
    slow.retried(resumed=True)
    slow.hedged()
    slow.hedge_won()
    both = fast.stats() + slow.stats()
    assert (both.requests, both.bytes, both.retries, both.resumed) == (102, 1020, 1, 1)
    assert (both.hedges, both.hedges_won) == (1, 1)
    assert both.latency_p95_s == pytest.approx(0.001, rel=0.05)
    assert both.latency_p99_s == pytest.approx(1.0, rel=0.05)


def test_as_dict_has_every_number_of_the_contract() -> None:
    assert Meter().stats().as_dict() == {
        "requests": 0,
        "bytes": 0,
        "retries": 0,
        "throttled": 0,
        "hedges": 0,
        "hedges_won": 0,
        "resumed": 0,
        "corrupt": 0,
        "latency_p50_s": 0.0,
        "latency_p95_s": 0.0,
        "latency_p99_s": 0.0,
    }


def test_nothing_is_lost_between_threads() -> None:
    meter = Meter()

    def count() -> None:
        for _ in range(2000):
            meter.answered(1, 0.001)
            meter.failed(throttled=True)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = meter.stats()
    assert (stats.requests, stats.bytes, stats.throttled, stats.latencies.total) == (16000, 8000, 8000, 8000)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_forked_while_a_thread_counts_is_not_stuck() -> None:
    meter = Meter()
    with meter._lock:  # as another thread may hold it
        pid = os.fork()
        if pid == 0:
            meter.answered(1, 0.1)
            os._exit(meter.stats().requests)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 1
