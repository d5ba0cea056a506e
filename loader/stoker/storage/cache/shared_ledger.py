"""The ledger of a folder: one for all processes, made anew from the files if it is broken."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sqlite3
import threading
from collections.abc import Iterator
from typing import Final

from stoker.storage.cache.folder import Folder, remove
from stoker.storage.cache.ledger import Ledger, create_tables
from stoker.storage.cache.locks import FileLocks

REBUILDING: Final = 1 << 62
"""The number that is locked: shared by whoever uses the ledger, alone by whoever makes it anew."""

_WAIT_S: Final = 5.0
_ENDINGS: Final = ("", "-journal")
# no such table, malformed, not a database
_BROKEN: Final = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class LedgerBusyError(Exception):
    """Somebody else has the ledger for longer than a cache is worth; never leaves the cache."""


class SharedLedger:
    """Opens the ledger and gives it out, for one transaction at a time. Thread-safe."""

    def __init__(self, folder: Folder, locks: FileLocks) -> None:
        self._folder = folder
        self._locks = locks
        self._mutex = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    @contextlib.contextmanager
    def transaction(self, at_s: float) -> Iterator[Ledger]:
        """The ledger, for a few decisions. LedgerBusyError, sqlite3.Error and OSError: as if nothing had been done."""
        if not self._mutex.acquire(timeout=_WAIT_S):
            raise LedgerBusyError
        try:
            with self._one_of_many():
                ledger = Ledger(self._open())
                with ledger.transaction(at_s):
                    yield ledger
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _BROKEN:
                self._rebuild()
            raise
        finally:
            self._mutex.release()

    def close(self) -> None:
        with self._mutex:
            self._disconnect()

    def abandon(self) -> None:
        """Forget the connection without a call into SQLite: it belongs to the process that forked this one."""
        if self._connection is not None:
            leave_open(self._connection)
            self._connection = None

    @contextlib.contextmanager
    def _one_of_many(self) -> Iterator[None]:
        if self._locks.try_lock(REBUILDING, shared=True):
            try:
                yield
            finally:
                self._locks.unlock(REBUILDING)
        else:
            with self._wait_for_others(shared=True):
                yield

    @contextlib.contextmanager
    def _wait_for_others(self, *, shared: bool) -> Iterator[None]:
        with contextlib.closing(self._locks.queue()) as queue:
            if not queue.lock(REBUILDING, _WAIT_S, shared=shared):
                raise LedgerBusyError
            yield

    def _open(self) -> sqlite3.Connection:
        """The connection to the file that lies there now; another process may have replaced it."""
        try:
            found = os.stat(self._folder.ledger)  # noqa: PTH116
        except FileNotFoundError:
            raise _missing() from None
        if self._connection is None or self._file != (found.st_dev, found.st_ino):
            self._disconnect()
            self._connection = _connect(self._folder.ledger)
            self._file = (found.st_dev, found.st_ino)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _rebuild(self) -> None:
        """From the entries in the folder; what was known of uses is lost, and so is what is being written."""
        self._disconnect()
        with self._wait_for_others(shared=False):
            if self._is_whole():  # another process was faster
                return
            for ending in _ENDINGS:
                remove(self._folder.ledger + ending)
            with contextlib.closing(_connect(self._folder.ledger)) as connection:
                self._fill(connection)

    def _is_whole(self) -> bool:
        if not os.path.exists(self._folder.ledger):  # noqa: PTH110
            return False
        with contextlib.suppress(sqlite3.Error), contextlib.closing(_connect(self._folder.ledger)) as connection:
            is_sound = connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
            return bool(is_sound and connection.execute("SELECT count(*) FROM held").fetchone() == (1,))
        return False

    def _fill(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        create_tables(connection)
        for digest, num_bytes in self._folder.entries():
            connection.execute("INSERT INTO entries VALUES(?, ?, 0, 0, 0)", (digest, num_bytes))
        connection.execute("COMMIT")


def leave_open(connection: sqlite3.Connection) -> None:
    """Never close a connection, not even when the interpreter ends.

    It belongs to the process that forked this one, whose threads may have been inside: SQLite forbids any call, and one
    would wait for ever.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
    # A power cut may break the file, which is then made anew; a killed process cannot. Not WAL: closing a file that was
    # replaced would delete the log of the new one, which has the same name.
    for pragma in ("journal_mode = PERSIST", "journal_size_limit = 1048576", "synchronous = OFF", "cache_size = -4096"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _missing() -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError("the ledger is missing")
    error.sqlite_errorcode = sqlite3.SQLITE_NOTADB
    return error
