"""Where entries of a decoded cache lie: a folder of this machine, or one in a bucket.

Both only ever make a cache that does not work a slower one: what goes wrong is counted, and the data are read instead.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from stoker.engine.prepared_entry import HEADER_BYTES, EntryError, Index, header_of, index_of
from stoker.engine.prepared_spool import SpoolFile
from stoker.errors import NotFoundError, StokerError
from stoker.storage.files import FileStore
from stoker.storage.store import Store

SUFFIX: Final = ".decoded"
PROBE: Final = "probe"
_RESERVE_BYTES: Final = 1 << 30
_LEFT_BEHIND_S: Final = 3600.0
_MARKER: Final = "CACHEDIR.TAG"
_MARKER_TEXT: Final = (
    b"Signature: 8a477f597d28d172789f06886806bc55\n# Samples that Stoker keeps decoded; may be deleted.\n"
)


class Entry(Protocol):
    """A chunk's entry that was found; safe for many threads."""

    @property
    def index(self) -> Index: ...

    def row(self, row: int) -> bytes:
        """The checked bytes of a row. Raises EntryError, OSError (as StorageError is)."""
        ...


class Place(Protocol):
    """One set of entries: those of one data set, prefix and back-end. Safe for many threads."""

    def find(self, name: str, identity: bytes, epoch: int) -> Entry | None:
        """An entry, None if there is none. Raises EntryError if it is damaged, OSError."""
        ...

    def write(self, name: str, payload: bytes) -> bool:
        """Put an entry, whole or not at all; False if there is no room. Raises OSError."""
        ...

    def drop(self, name: str) -> None:
        """Forget an entry that proved damaged."""
        ...

    def has(self, name: str) -> bool:
        """Whether an entry is there, as far as is known."""
        ...

    def has_entries(self) -> bool: ...

    def spool_folder(self) -> str | None:
        """Where rows of chunks that are not complete may wait; None is the system's folder for such."""
        ...

    def room(self) -> int:
        """Bytes that the entries of this set may take in all."""
        ...

    def rate(self, payload: bytes) -> float:
        """Bytes a second at which this much can be read here, measured. Raises OSError."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class FileEntry:
    """An entry in a file, which is opened for each row: it holds neither memory nor a descriptor."""

    path: Path
    index: Index

    def row(self, row: int) -> bytes:
        """See :class:`Entry`."""
        offset, num_bytes, _ = self.index.rows[row]
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            packed = os.pread(descriptor, num_bytes, offset)
        finally:
            os.close(descriptor)
        self.index.checked(row, packed)
        return packed


class FetchedEntry:
    """An entry that was read whole, into a file until nobody needs it: all open windows' may be more than memory."""

    def __init__(self, body: memoryview, index: Index, file: SpoolFile) -> None:
        self.index = index
        self._file = file
        self._num_bytes = len(body)
        self._start = file.put(body)
        weakref.finalize(self, file.leave, self._start, self._num_bytes).atexit = False

    def row(self, row: int) -> bytes:
        """See :class:`Entry`."""
        offset, num_bytes, _ = self.index.rows[row]
        packed = self._file.get(self._start + offset, num_bytes)
        self.index.checked(row, packed)
        return packed


class FolderPlace:
    """A folder that jobs and processes share, with one budget for all sets in it.

    ``used`` holds the bytes of all entries, and is changed under that file's lock; who opens a set counts anew. A set
    is held by a shared lock on its ``in-use``. When the budget is spent, the sets that nobody holds are deleted by
    whoever opens another, the longest unused first; within a set nothing is: what every epoch uses once is best kept as
    it is.
    """

    def __init__(self, folder: Path, set_name: str, max_bytes: int | None) -> None:
        self._folder = folder / "decoded"
        self._set = self._folder / set_name
        self._store = FileStore()
        self._known: set[str] = set()
        self._set.mkdir(parents=True, exist_ok=True)
        if not (self._folder / _MARKER).exists():
            self._store.write(str(self._folder / _MARKER), _MARKER_TEXT)
        in_use = os.open(self._set / "in-use", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._leave = weakref.finalize(self, os.close, in_use)
        fcntl.flock(in_use, fcntl.LOCK_SH)
        os.utime(in_use)
        self._max_bytes = max_bytes if max_bytes is not None else (self._free() + _used(self._folder)) // 2
        with contextlib.suppress(BlockingIOError), self._ledger(fcntl.LOCK_NB) as ledger:  # another is counting
            ledger.write(self._make_room(self._held()))
        self._known = {path.name.removesuffix(SUFFIX) for path in self._set.iterdir() if path.suffix == SUFFIX}

    def find(self, name: str, identity: bytes, epoch: int) -> FileEntry | None:  # noqa: ARG002  # a look costs nothing
        """See :class:`Place`."""
        path = self._set / (name + SUFFIX)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            header = header_of(os.pread(descriptor, HEADER_BYTES, 0), identity)
            if os.fstat(descriptor).st_size != header.num_bytes:
                raise EntryError(f"{path}: expected {header.num_bytes} bytes, found {os.fstat(descriptor).st_size}")
            index = index_of(os.pread(descriptor, header.index_bytes, HEADER_BYTES), header)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)  # the rows come soon, each with its own read
        finally:
            os.close(descriptor)
        self._known.add(name)
        return FileEntry(path, index)

    def write(self, name: str, payload: bytes) -> bool:
        """See :class:`Place`."""
        path = self._set / (name + SUFFIX)
        with self._ledger() as ledger:
            used = ledger.read() + len(payload)
            if path.exists():
                return True
            if used > self._max_bytes or self._free() - len(payload) < _RESERVE_BYTES:
                return False
            ledger.write(used)
        try:
            self._store.write(str(path), payload)
        except OSError:
            with self._ledger() as ledger:
                ledger.write(ledger.read() - len(payload))
            raise
        self._known.add(name)
        return True

    def drop(self, name: str) -> None:
        """See :class:`Place`."""
        self._known.discard(name)
        with contextlib.suppress(OSError):
            path = self._set / (name + SUFFIX)
            with self._ledger() as ledger:
                size = path.stat().st_size
                path.unlink()
                ledger.write(ledger.read() - size)

    def has(self, name: str) -> bool:
        """See :class:`Place`."""
        return name in self._known

    def spool_folder(self) -> str | None:
        """See :class:`Place`."""
        return str(self._set)

    def has_entries(self) -> bool:
        """See :class:`Place`."""
        return bool(self._known)

    def room(self) -> int:
        """See :class:`Place`."""
        with self._ledger() as ledger:
            others = ledger.read() - _num_bytes(self._set)
        return max(0, min(self._max_bytes - others, self._free() - _RESERVE_BYTES))

    def rate(self, payload: bytes) -> float:
        """See :class:`Place`; from the disk, not from memory."""
        path = self._set / f"{PROBE}-{os.getpid()}-{threading.get_ident()}"
        try:
            self._store.write(str(path), payload)
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                begun = time.monotonic()
                os.pread(descriptor, len(payload), 0)
                return len(payload) / max(time.monotonic() - begun, 1e-6)
            finally:
                os.close(descriptor)
        finally:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let others delete the set."""
        self._leave()

    def _free(self) -> int:
        found = os.statvfs(self._folder)
        return found.f_bavail * found.f_frsize

    def _held(self) -> dict[Path, int]:
        """The bytes of each set, without what killed writers left, which is deleted."""
        held = {}
        for folder in self._folder.iterdir():
            if folder.is_dir():
                _sweep(folder)
                held[folder] = _num_bytes(folder)
        return held

    def _make_room(self, held: dict[Path, int]) -> int:
        """Delete sets that nobody holds while nine tenths of the budget are spent; returns the bytes that are left."""
        used = sum(held.values())
        for folder in sorted((each for each in held if each != self._set), key=_last_use):
            if used <= 0.9 * self._max_bytes:
                break
            if _deleted(folder):
                used -= held[folder]
        return used

    @contextlib.contextmanager
    def _ledger(self, flags: int = 0) -> Iterator[_Ledger]:
        descriptor = os.open(self._folder / "used", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | flags)
            yield _Ledger(descriptor)
        finally:
            os.close(descriptor)


class _Ledger:
    """The bytes in a place, in a file that is locked."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self) -> int:
        text = os.pread(self._descriptor, 64, 0).split(b"\n")[0]
        return int(text) if text.isdigit() else 0

    def write(self, num_bytes: int) -> None:
        os.pwrite(self._descriptor, b"%d\n" % max(0, num_bytes), 0)


class BucketPlace:
    """Entries below a URL, listed once an epoch; read whole."""

    def __init__(self, url: str, set_name: str, max_bytes: int | None, options: Mapping[str, str]) -> None:
        from stoker.storage.open import open_store  # it may bring obstore
        from stoker.storage.retry import RetryPolicy

        self._url = f"{url.rstrip('/')}/decoded/{set_name}/"
        self._max_bytes = max_bytes
        policy = RetryPolicy(max_attempts=3, attempt_s=10.0, deadline_s=20.0)  # to decode again is no disaster
        self._store: Store = open_store(url, options, policy=policy)
        self._lock = threading.Lock()
        self._listed_epoch = -1
        self._sizes: dict[str, int] = {}
        self._own: dict[str, int] = {}
        self._fetched = SpoolFile(None)
        self._list()

    def find(self, name: str, identity: bytes, epoch: int) -> FetchedEntry | None:
        """See :class:`Place`."""
        with self._lock:
            is_new = epoch > self._listed_epoch
            self._listed_epoch = max(epoch, self._listed_epoch)
            size = self._sizes.get(name)
        if size is None and is_new:
            self._list()
            size = self._sizes.get(name)
        if size is None:
            return None
        try:
            body = self._store.read(self._url + name + SUFFIX, 0, size)
        except NotFoundError:
            self.drop(name)
            return None
        header = header_of(body[:HEADER_BYTES], identity)
        if header.num_bytes != size:
            raise EntryError(f"{self._url}{name}: expected {header.num_bytes} bytes, found {size}")
        index = index_of(body[HEADER_BYTES : HEADER_BYTES + header.index_bytes], header)
        return FetchedEntry(body, index, self._fetched)

    def write(self, name: str, payload: bytes) -> bool:
        """See :class:`Place`."""
        with self._lock:
            if name in self._sizes:
                return True
            if self._max_bytes is not None and sum(self._sizes.values()) + len(payload) > self._max_bytes:
                return False
        self._store.write(self._url + name + SUFFIX, payload)
        with self._lock:
            self._own[name] = self._sizes[name] = len(payload)
        return True

    def drop(self, name: str) -> None:
        """See :class:`Place`; it is written again when its rows are together."""
        with self._lock:
            self._sizes.pop(name, None)
            self._own.pop(name, None)

    def has(self, name: str) -> bool:
        """See :class:`Place`."""
        return name in self._sizes

    def spool_folder(self) -> str | None:
        """See :class:`Place`."""
        return None

    def has_entries(self) -> bool:
        """See :class:`Place`."""
        return bool(self._sizes)

    def room(self) -> int:
        """See :class:`Place`."""
        return 1 << 62 if self._max_bytes is None else self._max_bytes

    def rate(self, payload: bytes) -> float:
        """See :class:`Place`; leaves the object behind, one for each set."""
        self._store.write(self._url + PROBE, payload)
        begun = time.monotonic()
        self._store.read(self._url + PROBE, 0, len(payload))
        return len(payload) / max(time.monotonic() - begun, 1e-6)

    def close(self) -> None:
        """See :class:`Place`; what was fetched goes with the last who holds it."""

    def _list(self) -> None:
        found = {}
        with contextlib.suppress(StokerError):  # no right to list: what others wrote is then not seen
            for each in self._store.list(self._url):
                name = each.url.removeprefix(self._url)
                if name.endswith(SUFFIX):
                    found[name.removesuffix(SUFFIX)] = each.size_bytes
        with self._lock:
            self._sizes = found | self._own


def _num_bytes(folder: Path) -> int:
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                total += entry.stat().st_size if entry.name.endswith(SUFFIX) else 0
    return total


def _used(folder: Path) -> int:
    return sum(_num_bytes(each) for each in folder.iterdir() if each.is_dir())


def _sweep(folder: Path) -> None:
    """Delete what a writer that was killed has left: nothing is being written for an hour."""
    for path in folder.iterdir():
        if path.name.startswith((".stoker-", PROBE)):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _LEFT_BEHIND_S:
                    path.unlink()


def _last_use(folder: Path) -> float:
    try:
        return (folder / "in-use").stat().st_mtime
    except OSError:
        return 0.0


def _deleted(folder: Path) -> bool:
    """Delete a set that nobody holds."""
    try:
        descriptor = os.open(folder / "in-use", os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # not one of ours
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in folder.iterdir():
            if path.name.endswith(SUFFIX):
                path.unlink()
    except OSError:  # in use
        return False
    finally:
        os.close(descriptor)
    return True
