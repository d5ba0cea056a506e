"""A cache folder that this process has opened."""

from __future__ import annotations

import secrets
import sqlite3
from dataclasses import dataclass

from stoker.storage.cache.budget import Budget, Held, budget_of
from stoker.storage.cache.folder import Folder, prepare, remove
from stoker.storage.cache.ledger import Ledger
from stoker.storage.cache.locks import FileLocks
from stoker.storage.cache.options import CacheOptions
from stoker.storage.cache.shared_ledger import REBUILDING, LedgerBusyError, SharedLedger


@dataclass(frozen=True, slots=True)
class OpenFolder:
    """``owner`` names this opening: a number that stays locked while it lives, so others can tell whether it does."""

    folder: Folder
    locks: FileLocks
    ledger: SharedLedger
    owner: int
    budget: Budget

    def free_dead(self, ledger: Ledger) -> None:
        """Give back what processes had reserved that died before it was written."""
        for digest, owner in ledger.being_written():
            if owner != self.owner and not self.locks.is_locked(_alive(owner)):
                remove(self.folder.part(digest, owner))
                remove(self.folder.entry(digest))
                ledger.remove(digest)

    def close(self) -> None:
        self.ledger.close()
        self.locks.close()

    def abandon(self) -> None:
        """Let go in a forked child, without touching what is its parent's."""
        self.ledger.abandon()
        self.locks.abandon()


def open_folder(options: CacheOptions, path: str, at_s: float) -> OpenFolder:
    """Open or make the folder; SpecError if it cannot be a cache's, OSError, sqlite3.Error or LedgerBusyError else."""
    folder = prepare(path)
    locks = FileLocks(folder.marker)
    ledger = SharedLedger(folder, locks)
    owner = secrets.randbits(60) + 1
    try:
        locks.try_lock(_alive(owner))
        try:
            held = _held(ledger, at_s)
        except (sqlite3.DatabaseError, LedgerBusyError):  # missing or broken, and now made anew
            held = _held(ledger, at_s)
        opened = OpenFolder(folder, locks, ledger, owner, budget_of(options, folder.space(), held))
        with ledger.transaction(at_s) as inside:
            opened.free_dead(inside)
        for digest, writer in folder.parts():
            if not locks.is_locked(_alive(writer)):
                remove(folder.part(digest, writer))
    except BaseException:
        ledger.close()
        locks.close()
        raise
    return opened


def _held(ledger: SharedLedger, at_s: float) -> Held:
    with ledger.transaction(at_s) as inside:
        return inside.held()


def _alive(owner: int) -> int:
    return REBUILDING + 1 + owner
