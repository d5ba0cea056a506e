"""Rows come together in a spool that is bounded, whatever order they come in and whatever fails."""

from __future__ import annotations

import errno
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.engine import prepared_writer
from stoker.engine.prepared_spool import Spool, SpoolFile
from stoker.engine.prepared_stats import PreparedCounts, PreparedStats
from stoker.engine.prepared_writer import MAX_ERRORS, Writer

DEADLINE_S = 20.0


@given(st.permutations([(chunk, row) for chunk in range(3) for row in range(4)]))
def test_chunks_are_complete_in_any_order_of_rows(order: list[tuple[int, int]]) -> None:
    spool = Spool(None, 10_000)
    found = {}
    for chunk, row in order:
        if spool.add(chunk, row, 4, f"{chunk}/{row}".encode() * (row + 1), 0):
            found[chunk] = spool.take(chunk)
    spool.close()
    assert found == {chunk: [f"{chunk}/{row}".encode() * (row + 1) for row in range(4)] for chunk in range(3)}
    assert spool.reserved_bytes == 0


def test_no_more_chunks_are_begun_than_would_fit() -> None:
    spool = Spool(None, 250)
    assert not spool.add(0, 0, 2, bytes(60), 0)
    assert not spool.add(1, 0, 2, bytes(60), 0)
    assert not spool.add(2, 0, 2, bytes(60), 0)
    assert spool.reserved_bytes == 240
    assert spool.add(0, 1, 2, bytes(60), 0)
    assert not spool.add(2, 1, 2, bytes(60), 0)
    spool.close()


def test_rows_of_an_earlier_epoch_give_way_only_where_there_is_no_room() -> None:
    spool = Spool(None, 250)
    spool.add(0, 0, 2, bytes(60), 0)
    spool.add(1, 0, 2, bytes(60), 1)
    assert spool.add(0, 1, 2, bytes(60), 1)  # it waited for the second epoch
    spool.add(2, 0, 2, bytes(60), 2)
    assert not spool.add(1, 1, 2, bytes(60), 2)
    spool.close()


def test_a_file_uses_again_what_was_given_back() -> None:
    file = SpoolFile(None)
    first, second = file.put(b"first"), file.put(b"second")
    file.leave(first, 5)
    assert file.put(b"third") == first
    assert file.get(first, 5) == b"third"
    assert file.get(second, 6) == b"second"
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.get(second, 6)


class Shelf:
    """A place that keeps what it is given, or fails."""

    def __init__(self) -> None:
        self.rows: dict[int, list[bytes]] = {}
        self.has_room = True
        self.error: OSError | None = None

    def write(self, chunk_index: int, rows: list[bytes]) -> bool:
        if self.error is not None:
            raise self.error
        if self.has_room:
            self.rows[chunk_index] = rows
        return self.has_room


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def stats() -> PreparedStats:
    return PreparedStats()


@pytest.fixture
def writer(shelf: Shelf, stats: PreparedStats) -> Writer:
    return Writer(lambda: Spool(None, 1 << 20), shelf.write, stats)


def test_complete_chunks_are_written_once(writer: Writer, shelf: Shelf, stats: PreparedStats) -> None:
    for epoch in range(2):
        for row in (1, 0):
            writer.add(7, row, 2, b"row %d" % row, epoch)
        writer.add(8, 0, 2, b"alone", epoch)
        writer.wait(DEADLINE_S)
    assert shelf.rows == {7: [b"row 0", b"row 1"]}
    assert stats.counts == PreparedCounts(entries_written=1, bytes_written=10)
    writer.close()


def test_its_thread_ends_when_there_is_nothing_to_do(writer: Writer) -> None:
    writer.add(7, 0, 2, b"row", 0)
    writer.wait(DEADLINE_S)
    assert not [thread for thread in threading.enumerate() if thread.name == "stoker-keep-decoded"]


def test_a_chunk_that_is_given_up_is_not_written(writer: Writer, shelf: Shelf) -> None:
    writer.add(7, 0, 2, b"row 0", 0)
    writer.forget(7)
    writer.add(7, 1, 2, b"row 1", 0)
    writer.wait(DEADLINE_S)
    assert shelf.rows == {}
    writer.want(7)
    for row in range(2):
        writer.add(7, row, 2, b"row", 1)
    writer.wait(DEADLINE_S)
    assert list(shelf.rows) == [7]


def test_no_room_is_the_end(writer: Writer, shelf: Shelf, stats: PreparedStats) -> None:
    shelf.has_room = False
    writer.add(7, 0, 1, b"row", 0)
    writer.wait(DEADLINE_S)
    assert not writer.wants(8)
    assert stats.counts.declined == 1


def test_a_full_disk_is_said_once_and_tried_again_for_a_while(
    writer: Writer, shelf: Shelf, stats: PreparedStats, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.error = OSError(errno.ENOSPC, "No space left on device")
    writer.add(0, 0, 1, b"row", 0)
    writer.wait(DEADLINE_S)
    shelf.error = None
    writer.add(1, 0, 1, b"row", 0)
    writer.wait(DEADLINE_S)
    assert list(shelf.rows) == [1]
    shelf.error = OSError(errno.ENOSPC, "No space left on device")
    for chunk in range(2, MAX_ERRORS + 2):
        writer.add(chunk, 0, 1, b"row", 0)
        writer.wait(DEADLINE_S)
    assert not writer.wants(100)
    assert stats.counts.errors == MAX_ERRORS + 1
    assert caplog.text.count("No space left") == 2


def test_what_the_disk_does_not_keep_up_with_is_left_out(
    writer: Writer, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared_writer, "QUEUE_BYTES", 10)
    writer.add(7, 0, 1, b"longer than ten", 0)
    writer.wait(DEADLINE_S)
    assert shelf.rows == {}
    writer.add(7, 0, 1, b"short", 1)
    writer.wait(DEADLINE_S)
    assert shelf.rows == {7: [b"short"]}


def test_huge_chunks_are_declined_before_they_take_room(
    writer: Writer, shelf: Shelf, stats: PreparedStats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared_writer, "MAX_ENTRY_BYTES", 10)
    writer.add(7, 0, 4, b"four times this", 0)
    writer.wait(DEADLINE_S)
    assert stats.counts.declined == 1
    assert not writer.wants(7)
    assert writer.wants(8)
