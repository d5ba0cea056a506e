"""A large range is read in parts at once and comes out whole."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import TransientError
from stoker.storage.parallel import ParallelStore
from stoker.storage.store import ObjectInfo

WHOLE = bytes(index * 11 % 256 for index in range(1000))


class MemoryStore:
    """One object; reads can be made to meet at a barrier, or to fail behind an offset."""

    def __init__(self, barrier: threading.Barrier | None = None, fails_from: int | None = None) -> None:
        self.reads: list[tuple[int, int]] = []
        self._barrier = barrier
        self._fails_from = fails_from

    def head(self, url: str) -> ObjectInfo:
        return ObjectInfo(url, len(WHOLE), "v")

    def list(self, prefix: str, *, max_depth: int | None = None) -> Iterator[ObjectInfo]:
        yield self.head(prefix)

    def peek(self, folder: str) -> Sequence[str]:
        return ["x"]

    def read(self, url: str, start: int, stop: int, version: str = "") -> memoryview:
        self.reads.append((start, stop))
        if self._barrier is not None:
            self._barrier.wait(timeout=10)
        if self._fails_from is not None and start >= self._fails_from:
            raise TransientError(f"{url} bytes [{start}, {stop})")
        return memoryview(WHOLE)[start:stop]

    def write(self, url: str, payload: bytes) -> None:
        self.written = payload


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(20, 300), st.integers(1, 9))
def test_whole_whatever_the_cuts(first: int, second: int, part_bytes: int, max_requests: int) -> None:
    start, stop = sorted((first, second))
    inner = MemoryStore()
    store = ParallelStore(inner, part_bytes=part_bytes, max_requests=max_requests)
    assert bytes(store.read("u", start, stop)) == WHOLE[start:stop]
    assert all(after - before <= part_bytes for before, after in inner.reads)


def test_parts_are_in_flight_together() -> None:
    inner = MemoryStore(barrier=threading.Barrier(4))
    view = ParallelStore(inner, part_bytes=250).read("u", 0, 1000)
    assert bytes(view) == WHOLE
    assert view.readonly


def test_small_reads_are_passed_on_without_a_thread_or_a_copy() -> None:
    view = ParallelStore(MemoryStore(), part_bytes=100).read("u", 0, 100)
    assert view.obj is WHOLE


def test_the_threads_are_gone_after_a_read_and_after_an_error() -> None:
    before = threading.active_count()
    ParallelStore(MemoryStore(), part_bytes=100).read("u", 0, 1000)
    with pytest.raises(TransientError, match=r"\[500, 600\)"):
        ParallelStore(MemoryStore(fails_from=500), part_bytes=100).read("u", 0, 1000)
    assert threading.active_count() == before


def test_everything_else_is_passed_on() -> None:
    inner = MemoryStore()
    store = ParallelStore(inner)
    store.write("u", b"x")
    assert (store.head("u").size_bytes, len(list(store.list("u"))), store.peek("u/"), inner.written) == (
        1000,
        1,
        ["x"],
        b"x",
    )
