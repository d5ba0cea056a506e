"""What is held and when it is used next, in the order in which it would go.

A table in SQLite, in memory or shared by processes: it keeps the order that ``policy.py`` decides by, so an eviction
among 10^6 entries looks at a few rows. All methods are called inside ``transaction``.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import sqlite3
from collections.abc import Generator, Iterator
from typing import Final

from stoker.storage.cache.budget import Held
from stoker.storage.cache.policy import (
    GRACE,
    Candidate,
    Clock,
    advanced,
    choose,
    is_silent,
    seconds_until,
)
from stoker.storage.use import NEVER, Use

# entries.owner: 0, or who is writing it. entries.job: the job that uses it next, whose time is in `next`.
_SCHEMA: Final = """
CREATE TABLE jobs(
    id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL,
    now REAL, moved_s REAL, seen_s REAL, pace_s REAL, mark REAL, mark_s REAL);
CREATE TABLE uses(digest BLOB, job INTEGER, next REAL, PRIMARY KEY(digest, job)) WITHOUT ROWID;
CREATE TABLE entries(digest BLOB PRIMARY KEY, bytes INTEGER, owner INTEGER, job INTEGER, next REAL) WITHOUT ROWID;
CREATE INDEX by_use ON entries(job, next);
CREATE INDEX by_owner ON entries(owner) WHERE owner != 0;
CREATE TABLE held(bytes INTEGER, files INTEGER);
INSERT INTO held VALUES(0, 0);
CREATE TRIGGER entry_added AFTER INSERT ON entries
BEGIN UPDATE held SET bytes = bytes + NEW.bytes, files = files + 1; END;
CREATE TRIGGER entry_gone AFTER DELETE ON entries
BEGIN UPDATE held SET bytes = bytes - OLD.bytes, files = files - 1; END;
"""

_NOBODY: Final = 0
_BEING_WRITTEN: Final = -1
_FORGET_JOB_S: Final = 6 * 3600.0


def create_tables(connection: sqlite3.Connection) -> None:
    """Make an empty ledger; inside a transaction of the caller, if there is one."""
    for statement in _SCHEMA.split(";\n"):
        if statement.strip():
            connection.execute(statement)


class Ledger:
    """Entries by digest, their sizes, and the uses that jobs have told of. Not thread-safe.

    Uses are kept also of ranges that are not held: whoever loads one for a job knows that another needs it soon.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._ids: dict[str, int] = {}
        self._clocks: dict[int, Clock] = {}
        self._moved: set[int] = set()
        self._at_s = 0.0

    @contextlib.contextmanager
    def transaction(self, at_s: float) -> Iterator[None]:
        """All or nothing; ``at_s`` is the time for which everything is decided."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._at_s = at_s
            self._load_clocks()
            yield
            self._save_clocks()
            self._connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise

    def note(self, digest: bytes, use: Use) -> None:
        """A job reads this range now, and again at ``use.next``."""
        job = self._ids.get(use.job)
        if job is None:
            job = self._add_job(use.job)
        self._clocks[job] = advanced(self._clocks.get(job), use.now, self._at_s)
        self._moved.add(job)
        self._put(digest, job, use.next)

    def expect(self, digest: bytes, job: str, next_use: float) -> None:
        """The same without a read: a use that another ledger knew of."""
        if job in self._ids:
            self._put(digest, self._ids[job], next_use)

    def owner_of(self, digest: bytes) -> int | None:
        """Who is writing the entry; 0 if it is there; None if it is not."""
        row = self._connection.execute("SELECT owner FROM entries WHERE digest = ?", (digest,)).fetchone()
        return None if row is None else int(row[0])

    def held(self) -> Held:
        num_bytes, num_files = self._connection.execute("SELECT bytes, files FROM held").fetchone()
        query = "SELECT coalesce(sum(bytes), 0) FROM entries WHERE owner != 0"
        return Held(num_bytes, num_files, self._connection.execute(query).fetchone()[0])

    def choose(
        self, digest: bytes, short_bytes: int, short_files: int, *, evict: bool = True
    ) -> list[Candidate] | None:
        """What must go for this range, which is not held; None: it is not worth it. Without ``evict`` nothing is."""
        until_s = self.until_s(digest) if evict else math.inf
        return self._choose(short_bytes, short_files, until_s)

    def choose_any(self, short_bytes: int, short_files: int) -> list[Candidate]:
        """The farthest ones, for room that must be made whatever for; all, if they are not enough."""
        held = self.held()
        most_bytes = held.num_bytes - held.reserved_bytes
        most_files = held.num_files - len(self.being_written())
        return self._choose(min(short_bytes, most_bytes), min(short_files, most_files), -math.inf) or []

    def add(self, digest: bytes, num_bytes: int, owner: int = 0) -> None:
        """Hold an entry, or reserve room for one that ``owner`` writes: that one cannot be chosen until ``settle``."""
        self._connection.execute(
            "INSERT INTO entries VALUES(?, ?, ?, ?, 0)",
            (digest, num_bytes, owner, _BEING_WRITTEN if owner else _NOBODY),
        )
        if not owner:
            self._lead(digest)

    def settle(self, digest: bytes) -> None:
        """The entry is written."""
        self._connection.execute("UPDATE entries SET owner = 0 WHERE digest = ?", (digest,))
        self._lead(digest)

    def remove(self, digest: bytes) -> None:
        self._connection.execute("DELETE FROM entries WHERE digest = ?", (digest,))

    def being_written(self) -> list[tuple[bytes, int]]:
        """Entries with the owners that are writing them."""
        return self._connection.execute("SELECT digest, owner FROM entries WHERE owner != 0").fetchall()

    def next_use(self, digest: bytes) -> tuple[str, float] | None:
        """The job that uses an entry next, and when on its clock."""
        query = "SELECT name, next FROM entries JOIN jobs ON jobs.id = job WHERE digest = ?"
        row = self._connection.execute(query, (digest,)).fetchone()
        return None if row is None else (row[0], row[1])

    def until_s(self, digest: bytes) -> float:
        """The time until any job uses the range."""
        return self._next(digest)[0]

    def _next(self, digest: bytes) -> tuple[float, int, float]:
        first = (math.inf, _NOBODY, 0.0)
        for job, when in self._connection.execute("SELECT job, next FROM uses WHERE digest = ?", (digest,)):
            until_s = seconds_until(self._clocks[job], when, self._at_s)
            first = min(first, (until_s, job, when)) if until_s < math.inf else first
        return first

    def _put(self, digest: bytes, job: int, when: float) -> None:
        if when == NEVER:
            self._connection.execute("DELETE FROM uses WHERE digest = ? AND job = ?", (digest, job))
        else:
            self._connection.execute("INSERT OR REPLACE INTO uses VALUES(?, ?, ?)", (digest, job, when))
        self._lead(digest)

    def _lead(self, digest: bytes) -> None:
        if self.owner_of(digest) == 0:
            _, job, when = self._next(digest)
            self._connection.execute("UPDATE entries SET job = ?, next = ? WHERE digest = ?", (job, when, digest))

    def _choose(self, short_bytes: int, short_files: int, until_s: float) -> list[Candidate] | None:
        stale: list[bytes] = []
        farthest = self._farthest(stale)
        chosen = choose(short_bytes, short_files, until_s, farthest)
        farthest.close()
        for digest in stale:
            self._lead(digest)
        return None if chosen is None else list(chosen)

    def _farthest(self, stale: list[bytes]) -> Generator[Candidate, None, None]:
        """All that can go, the farthest next use first; those whose leader is another now go to ``stale``."""
        numbers = itertools.count()
        heap: list[tuple[float, int, Candidate, Iterator[Candidate]]] = []

        def push(stream: Iterator[Candidate]) -> None:
            for each in stream:
                heapq.heappush(heap, (-each.until_s, next(numbers), each, stream))
                return

        for stream in self._streams():
            push(stream)
        while heap:
            _, _, first, stream = heapq.heappop(heap)
            until_s = self.until_s(first.digest)
            if until_s < first.until_s:  # another job comes before the one that led
                stale.append(first.digest)
                push(iter([Candidate(first.digest, first.num_bytes, until_s)]))
            else:
                yield first
            push(stream)

    def _streams(self) -> Iterator[Iterator[Candidate]]:
        """Of each job the entries that it leads, over before still to come, each stream with the farthest first."""
        query = "SELECT digest, bytes, next FROM entries WHERE job = ? AND next {} ORDER BY next DESC"
        for job, clock in [(_NOBODY, None), *self._clocks.items()]:
            if clock is None or is_silent(clock, self._at_s):
                yield self._stream("SELECT digest, bytes, next FROM entries WHERE job = ?", (job,), None)
            else:
                over = clock.now - GRACE
                yield self._stream(query.format("< ?"), (job, over), None)
                yield self._stream(query.format(">= ?"), (job, over), clock)

    def _stream(self, query: str, values: tuple[float, ...], clock: Clock | None) -> Iterator[Candidate]:
        for digest, num_bytes, when in self._connection.execute(query, values):
            until_s = math.inf if clock is None else seconds_until(clock, when, self._at_s)
            yield Candidate(digest, num_bytes, until_s)

    def _add_job(self, name: str) -> int:
        for job, clock in list(self._clocks.items()):
            if self._at_s - clock.seen_s > _FORGET_JOB_S:
                self._forget_job(job)
        cursor = self._connection.execute("INSERT INTO jobs(name) VALUES(?)", (name,))
        job = int(cursor.lastrowid or 0)
        self._ids[name] = job
        return job

    def _forget_job(self, job: int) -> None:
        self._connection.execute("UPDATE entries SET job = 0, next = 0 WHERE job = ?", (job,))
        self._connection.execute("DELETE FROM uses WHERE job = ?", (job,))
        self._connection.execute("DELETE FROM jobs WHERE id = ?", (job,))
        del self._clocks[job]
        self._ids = {name: each for name, each in self._ids.items() if each != job}

    def _load_clocks(self) -> None:
        rows = self._connection.execute(
            "SELECT id, name, now, moved_s, seen_s, pace_s, mark, mark_s FROM jobs"
        ).fetchall()
        self._ids = {row[1]: row[0] for row in rows}
        self._clocks = {row[0]: Clock(*row[2:]) for row in rows}
        self._moved.clear()

    def _save_clocks(self) -> None:
        query = "UPDATE jobs SET now = ?, moved_s = ?, seen_s = ?, pace_s = ?, mark = ?, mark_s = ? WHERE id = ?"
        for job in self._moved & self._clocks.keys():
            c = self._clocks[job]
            self._connection.execute(query, (c.now, c.moved_s, c.seen_s, c.pace_s, c.mark, c.mark_s, job))
