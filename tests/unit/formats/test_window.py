from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.formats.window import Window

CONTENT = bytes(range(256)) * 4


class Reader:
    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []

    def __call__(self, start: int, stop: int) -> memoryview:
        self.ranges.append((start, stop))
        return memoryview(CONTENT)[start:stop]


def fail_at(position: int) -> Callable[[int, int], memoryview]:
    def read(start: int, stop: int) -> memoryview:
        if stop > position:
            raise OSError("gone")
        return memoryview(CONTENT)[start:stop]

    return read


def test_reads_span_by_span() -> None:
    reader = Reader()
    window = Window(reader, 100, span=40)
    assert bytes(window.at(0, 10)) == CONTENT[:40]
    assert bytes(window.at(39, 1)) == CONTENT[39:40]
    assert bytes(window.at(40, 1)) == CONTENT[40:80]
    assert bytes(window.at(80, 50)) == CONTENT[80:100]
    assert bytes(window.at(100, 1)) == b""
    assert reader.ranges == [(0, 40), (40, 80), (80, 100)]


def test_keeps_what_is_needed_across_a_border() -> None:
    reader = Reader()
    window = Window(reader, 100, span=40)
    window.at(0, 1)
    assert bytes(window.at(30, 20)) == CONTENT[30:80]
    assert reader.ranges == [(0, 40), (40, 80)]


def test_hops_without_reading_what_lies_between() -> None:
    reader = Reader()
    window = Window(reader, 1000, span=40)
    window.at(0, 1)
    window.at(900, 1)
    assert reader.ranges == [(0, 40), (900, 940)]


def test_asks_for_more_than_a_span() -> None:
    reader = Reader()
    assert len(Window(reader, 1000, span=40).at(0, 500)) == 500
    assert reader.ranges == [(0, 500)]


def test_reads_ahead_once_and_drops_it_after_a_hop() -> None:
    reader = Reader()
    with ThreadPoolExecutor(1) as pool:
        window = Window(reader, 1000, pool, span=40)
        assert bytes(window.at(0, 1)) == CONTENT[:40]
        assert bytes(window.at(40, 1)) == CONTENT[40:80]
        assert bytes(window.at(900, 1)) == CONTENT[900:940]
        window.close()
    assert reader.ranges.count((40, 80)) == 1
    assert (900, 940) in reader.ranges


def test_an_error_ahead_comes_when_it_is_needed() -> None:
    with ThreadPoolExecutor(1) as pool:
        window = Window(fail_at(40), 1000, pool, span=40)
        window.at(0, 1)
        with pytest.raises(OSError, match="gone"):
            window.at(40, 1)
        window.close()


def test_close_keeps_quiet_about_an_error_that_nobody_waits_for() -> None:
    with ThreadPoolExecutor(1) as pool:
        window = Window(fail_at(40), 1000, pool, span=40)
        window.at(0, 1)
        window.close()


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 200)), max_size=8),
    st.integers(0, len(CONTENT)),
    st.integers(1, 300),
)
def test_always_gives_what_was_asked(steps: list[tuple[int, int]], size: int, span: int) -> None:
    window = Window(Reader(), size, span=span)
    position = 0
    for step, num_bytes in steps:
        position += step
        found = bytes(window.at(position, num_bytes))
        wanted = CONTENT[position : min(position + num_bytes, size)]
        assert found[: len(wanted)] == wanted
        assert found == CONTENT[position : position + len(found)]
        assert position + len(found) <= max(size, position)
