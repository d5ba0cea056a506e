"""What would go first, for one job and for several."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator

import pytest

from stoker.storage.cache.ledger import Ledger, create_tables
from stoker.storage.use import NEVER, Use


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    create_tables(connection)
    yield Ledger(connection)
    connection.close()


def entry(number: int) -> bytes:
    return number.to_bytes(32, "big")


def hold(ledger: Ledger, number: int, use: Use, num_bytes: int = 10) -> None:
    ledger.note(entry(number), use)
    ledger.add(entry(number), num_bytes)


def victims(ledger: Ledger, number: int, short_bytes: int) -> list[int] | None:
    found = ledger.choose(entry(number), short_bytes, 0)
    return None if found is None else [int.from_bytes(each.digest, "big") for each in found]


def test_the_farthest_use_of_one_job_goes_first_exactly(ledger: Ledger) -> None:
    order = random.Random(1).sample(range(100), 100)
    with ledger.transaction(0.0):
        for number in order:
            hold(ledger, number, Use("a", 0.0, 1 + number * 1e-9))
        ledger.note(entry(200), Use("a", 0.0, 1 + 95.5e-9))
        assert victims(ledger, 200, 35) == [99, 98, 97, 96]
        assert victims(ledger, 200, 45) is None


def test_unknown_uses_and_those_that_are_over_go_before_all(ledger: Ledger) -> None:
    with ledger.transaction(0.0):
        hold(ledger, 1, Use("a", 1.0, NEVER))
        hold(ledger, 2, Use("a", 1.0, 1.2))
        hold(ledger, 3, Use("a", 1.0, 1.9))
        ledger.note(entry(9), Use("a", 1.6, 1.7))
        assert sorted(victims(ledger, 9, 15) or []) == [1, 2]
        assert victims(ledger, 9, 25) is not None


def test_an_entry_is_as_near_as_the_first_of_its_jobs_is(ledger: Ledger) -> None:
    with ledger.transaction(0.0):
        for job in ("a", "b"):
            ledger.note(entry(99), Use(job, 0.0, NEVER))
    with ledger.transaction(100.0):
        ledger.note(entry(99), Use("a", 0.1, NEVER))  # 1000 s an epoch
        ledger.note(entry(99), Use("b", 1.0, NEVER))  # 100 s an epoch
        hold(ledger, 1, Use("a", 0.1, 1.0))  # in 900 s
        hold(ledger, 2, Use("b", 1.0, 3.0))  # in 200 s
        hold(ledger, 3, Use("a", 0.1, 0.9))  # in 800 s,
        ledger.note(entry(3), Use("b", 1.0, 1.5))  # but in 50 s
        ledger.note(entry(50), Use("a", 0.1, 0.2))  # in 100 s
        assert victims(ledger, 50, 1) == [1]
        assert victims(ledger, 50, 15) == [1, 2]
        assert victims(ledger, 50, 25) is None


def test_when_the_nearer_job_dies_the_other_ones_use_counts(ledger: Ledger) -> None:
    with ledger.transaction(0.0):
        hold(ledger, 1, Use("dead", 0.0, 0.1))
        ledger.note(entry(1), Use("a", 0.0, 0.5))
        hold(ledger, 2, Use("a", 0.0, 0.7))
        hold(ledger, 3, Use("dead", 0.0, 0.1))
    with ledger.transaction(3000.0):
        ledger.note(entry(9), Use("a", 0.1, 0.2))
        assert victims(ledger, 9, 30) == [3, 2, 1]


def test_a_use_that_was_told_before_the_range_is_held_counts(ledger: Ledger) -> None:
    with ledger.transaction(0.0):
        hold(ledger, 1, Use("a", 0.0, 0.5))
        ledger.note(entry(2), Use("b", 0.0, 0.1))
        ledger.note(entry(2), Use("a", 0.0, 0.9))
        assert victims(ledger, 2, 1) == [1]


def test_what_is_being_written_stays(ledger: Ledger) -> None:
    with ledger.transaction(0.0):
        ledger.note(entry(1), Use("a", 0.0, 0.9))
        ledger.add(entry(1), 10, owner=7)
        ledger.note(entry(2), Use("a", 0.0, 0.1))
        assert victims(ledger, 2, 1) is None
        assert ledger.held().reserved_bytes == 10
        assert ledger.being_written() == [(entry(1), 7)]
        ledger.settle(entry(1))
        assert victims(ledger, 2, 1) == [1]
        assert ledger.held().reserved_bytes == 0


def test_totals_follow(ledger: Ledger) -> None:
    with ledger.transaction(0.0):
        hold(ledger, 1, Use("a", 0.0, 1.0), 100)
        hold(ledger, 2, Use("a", 0.0, 1.0), 50)
        ledger.remove(entry(1))
        assert (ledger.held().num_bytes, ledger.held().num_files) == (50, 1)


def test_a_transaction_that_fails_did_nothing(ledger: Ledger) -> None:
    def fail() -> None:
        with ledger.transaction(0.0):
            hold(ledger, 1, Use("a", 0.0, 1.0))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with ledger.transaction(0.0):
        assert ledger.owner_of(entry(1)) is None
        hold(ledger, 1, Use("a", 0.0, 1.0))


def test_jobs_that_are_long_gone_are_forgotten(ledger: Ledger) -> None:
    with ledger.transaction(0.0):
        hold(ledger, 1, Use("old", 0.0, 1.0))
    with ledger.transaction(1e6):
        ledger.note(entry(2), Use("new", 0.0, 1.0))
        assert ledger.next_use(entry(1)) is None
    with ledger.transaction(1e6):
        ledger.note(entry(1), Use("newer", 0.0, 1.0))
        assert ledger.next_use(entry(1)) == ("newer", 1.0)
