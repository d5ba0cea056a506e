"""Ranges in files of a folder that processes and jobs share; whatever its disk does, it is only slower."""

from __future__ import annotations

import contextlib
import enum
import os
import threading
from collections.abc import Callable, Iterator, Sequence

from stoker.errors import SpecError
from stoker.storage.cache.budget import Held, overfull, shortage
from stoker.storage.cache.entry_file import HEADER_BYTES, read_entry, write_entry
from stoker.storage.cache.faults import PAUSE_S, Faults
from stoker.storage.cache.folder import remove
from stoker.storage.cache.ledger import Ledger
from stoker.storage.cache.locks import LockQueue
from stoker.storage.cache.open_folder import OpenFolder, open_folder
from stoker.storage.cache.options import CacheOptions
from stoker.storage.cache.policy import Candidate
from stoker.storage.use import Use


class _Room(enum.Enum):
    RESERVED = enum.auto()
    HELD = enum.auto()
    DECLINED = enum.auto()


class DiskTier:
    """Thread-safe. Only the constructor raises, SpecError for a folder or a budget that cannot be."""

    def __init__(self, options: CacheOptions, path: str, clock: Callable[[], float]) -> None:
        self._options = options
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._opened: OpenFolder | None = None
        self._closed = False
        self._open_again_s = -float("inf")
        self._unreleased: set[bytes] = set()
        self._held = Held()
        self.faults = Faults(path, clock)
        self.evicted = 0
        self._open(at_start=True)

    @property
    def budget_bytes(self) -> int:
        """What the folder may hold; 0 while it cannot be opened."""
        opened = self._open()
        return 0 if opened is None else opened.budget.num_bytes

    def holds(self, digest: bytes) -> bool:
        """Whether a file of that name is there; only a read tells whether it is whole."""
        opened = self._open()
        return opened is not None and os.path.lexists(opened.folder.entry(digest))

    def note(self, reads: Sequence[tuple[bytes, Use]]) -> None:
        """Jobs read these ranges now."""
        opened = self._open()
        if opened is not None:
            with self.faults.slower(), self._transaction(opened) as ledger:
                for digest, use in reads:
                    ledger.note(digest, use)

    def expect(self, digest: bytes, job: str, next_use: float) -> None:
        """A job reads this range later."""
        opened = self._open()
        if opened is not None:
            with self.faults.slower(), self._transaction(opened) as ledger:
                ledger.expect(digest, job, next_use)

    def read(self, digest: bytes, num_bytes: int) -> memoryview | None:
        """The range, if it is here and whole; a file that holds anything else is removed."""
        opened = self._open()
        if opened is None:
            return None
        with self.faults.slower():
            try:
                found = read_entry(opened.folder.entry(digest), digest, num_bytes)
            except FileNotFoundError:
                return None
            if found is None:
                self.faults.fault(f"an entry was torn or changed, and is removed: {opened.folder.entry(digest)}")
                self.drop(digest)
            return found
        return None

    def offer(self, digest: bytes, payload: memoryview, *, evict: bool = True) -> bool:
        """Keep the range if the policy wants it; without ``evict`` only if there is room. Whether it is here."""
        opened = self._open()
        if opened is None or not self.faults.may_write():
            return False
        with self.faults.slower(writes=True):
            with self._transaction(opened) as ledger:
                room = self._reserve(opened, ledger, digest, HEADER_BYTES + payload.nbytes, evict)
                self._held = ledger.held()
            return self._write(opened, digest, payload) if room is _Room.RESERVED else room is _Room.HELD
        return False

    def drop(self, digest: bytes) -> None:
        """Remove the range, unless it is just being written."""
        opened = self._open()
        if opened is not None:
            with self.faults.slower(), self._transaction(opened) as ledger:
                if not ledger.owner_of(digest):
                    remove(opened.folder.entry(digest))
                    ledger.remove(digest)

    def try_lock(self, digest: bytes) -> bool:
        """Whether this process may load the range; not while another does. ``unlock`` follows."""
        opened = self._open()
        if opened is not None:
            with self.faults.slower():
                return opened.locks.try_lock(lock_number(digest))
        return True

    def unlock(self, digest: bytes) -> None:
        opened = self._opened
        if opened is not None:
            with self.faults.slower():
                opened.locks.unlock(lock_number(digest))

    def queue(self) -> LockQueue | None:
        """To wait for ranges that others load, in ascending order of ``lock_number``."""
        opened = self._open()
        if opened is not None:
            with self.faults.slower():
                return opened.locks.queue()
        return None

    def held(self) -> Held:
        """What lies in the folder, by whomever; as it was last known if the ledger is busy."""
        opened = self._open()
        if opened is not None:
            with self.faults.slower(), self._transaction(opened) as ledger:
                self._held = ledger.held()
        return self._held

    def close(self) -> None:
        with self._lock:
            opened, self._opened, self._closed = self._opened, None, True
        if opened is not None:
            with self.faults.slower():
                opened.close()

    def after_fork(self) -> None:
        """The child opens the folder for itself when it needs it."""
        self._lock = threading.Lock()
        opened, self._opened = self._opened, None
        self._open_again_s = -float("inf")
        self._unreleased = set()
        if opened is not None:
            opened.abandon()

    def _open(self, *, at_start: bool = False) -> OpenFolder | None:
        with self._lock:
            at_s = self._clock()
            if self._opened is None and not self._closed and at_s >= self._open_again_s:
                self._open_again_s = at_s + PAUSE_S
                try:
                    with self.faults.slower():
                        self._opened = open_folder(self._options, self._path, at_s)
                        with self._transaction(self._opened) as ledger:
                            self._shrink(self._opened, ledger)
                except SpecError as error:
                    if at_start:
                        raise
                    self.faults.fault(str(error))
            return self._opened

    @contextlib.contextmanager
    def _transaction(self, opened: OpenFolder) -> Iterator[Ledger]:
        with opened.ledger.transaction(self._clock()) as ledger:
            yield ledger

    def _reserve(self, opened: OpenFolder, ledger: Ledger, digest: bytes, size: int, evict: bool) -> _Room:
        opened.free_dead(ledger)
        self._release(opened, ledger)
        self._shrink(opened, ledger)
        owner = ledger.owner_of(digest)
        if owner:
            return _Room.DECLINED  # it is being written
        if owner == 0:
            if os.path.lexists(opened.folder.entry(digest)):
                return _Room.HELD
            ledger.remove(digest)
        if size > opened.budget.num_bytes:
            self.faults.say(
                "size",
                f"cannot keep a range of {size:,} bytes: its budget is {opened.budget.num_bytes:,}, with reserve_bytes="
                f"{opened.budget.reserve_bytes:,} left free. Give disk_bytes of a multiple of the largest range, or "
                "smaller chunk_bytes",
            )
            return _Room.DECLINED
        short = shortage(size, opened.budget, ledger.held(), opened.folder.space().free_bytes)
        victims = ledger.choose(digest, *short, evict=evict)
        if victims is None:
            return _Room.DECLINED
        self._evict(opened, ledger, victims)
        ledger.add(digest, size, opened.owner)
        return _Room.RESERVED

    def _shrink(self, opened: OpenFolder, ledger: Ledger) -> None:
        """Give room back if others have filled the disk into the reserve, or held more than this budget allows."""
        over = overfull(opened.budget, ledger.held(), opened.folder.space().free_bytes)
        if max(over) > 0:
            self._evict(opened, ledger, ledger.choose_any(*over))

    def _evict(self, opened: OpenFolder, ledger: Ledger, victims: Sequence[Candidate]) -> None:
        # The file goes before the row: dying between leaves a row without a file, which is the next to be chosen.
        for each in victims:
            remove(opened.folder.entry(each.digest))
            ledger.remove(each.digest)
        self.evicted += len(victims)

    def _write(self, opened: OpenFolder, digest: bytes, payload: memoryview) -> bool:
        part = opened.folder.part(digest, opened.owner)
        try:
            write_entry(part, digest, payload)
            with self._transaction(opened) as ledger:
                is_ours = ledger.owner_of(digest) == opened.owner  # not if the ledger was made anew
                if is_ours:
                    os.replace(part, opened.folder.entry(digest))  # noqa: PTH105
                    ledger.settle(digest)
                self._held = ledger.held()
        except BaseException:
            self._unreleased.add(digest)
            with self.faults.slower(), self._transaction(opened) as ledger:
                self._release(opened, ledger)
            raise
        if not is_ours:
            remove(part)
        return is_ours

    def _release(self, opened: OpenFolder, ledger: Ledger) -> None:
        """Give back the room of what could not be written."""
        for digest in list(self._unreleased):
            remove(opened.folder.part(digest, opened.owner))
            if ledger.owner_of(digest) == opened.owner:
                remove(opened.folder.entry(digest))
                ledger.remove(digest)
            self._unreleased.discard(digest)


def lock_number(digest: bytes) -> int:
    """The lock of a range, among those of ``locks.py``."""
    return int.from_bytes(digest[:8], "big") >> 2
