"""An object by value in a nameless file in memory, which any number of processes open."""

from __future__ import annotations

import mmap
import os
import pickle
import struct
import weakref
from array import array
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Self

from stoker.code.blame import blame_for
from stoker.code.by_value import users_modules_by_value
from stoker.errors import SpecError
from stoker.processes.columns import Flat, Layout, NotFlatError, columns_by_block, flatten
from stoker.processes.fingerprint import hash_of
from stoker.processes.memory_file import MemoryFile, sealed
from stoker.processes.parts import Reference, take_apart, trial_of
from stoker.processes.shared_list import SharedList
from stoker.processes.storages import DeviceError, check_sparse_tensors, make_storage, rebuild_tensor, with_dtype

__all__ = ["Opened", "Payload", "fingerprint", "pack", "unpack"]

_HEAD: Final = struct.Struct("<8sqqqq")
"""Mark; where the pickle and the index begin, and how long they are."""

_MARK: Final = b"stokerP1"
_NO_RESERVE: Final = getattr(mmap, "MAP_NORESERVE", 0x4000)  # pages that nobody writes need no room


_REMEDY: Final = (
    "open or make it at first use, in the worker; or leave it out of what is pickled (__getstate__); or give "
    'multiprocessing_context="fork", whose workers are copies of this process'
)


class Payload:
    """An object by value, in a nameless file in memory; immutable once made.

    ``fd`` is open for whoever is sent it, and closed by :meth:`close` or with the last reference.
    """

    def __init__(self, fd: int, num_bytes: int) -> None:
        self.fd = fd
        self.num_bytes = num_bytes
        self._closing = weakref.finalize(self, os.close, fd)

    @classmethod
    def of(cls, parts: Iterable[bytes | memoryview], num_bytes: int) -> Self:
        """Make it from the bytes that :meth:`view` gave elsewhere. Raises ValueError for another length."""
        return cls(sealed(parts, num_bytes), num_bytes)

    def view(self) -> memoryview:
        """All bytes, for sending elsewhere; valid after :meth:`close`, too."""
        return memoryview(mmap.mmap(self.fd, self.num_bytes, prot=mmap.PROT_READ))

    def close(self) -> None:
        """Close the descriptor; harmless again. Who has it open or mapped goes on."""
        self._closing()
        self.fd = -1


class Opened:
    """A payload as a receiver sees it; has a descriptor of its own."""

    def __init__(self, fd: int) -> None:
        self._fd = os.dup(fd)
        self._closing = weakref.finalize(self, os.close, self._fd)
        self._num_bytes = os.fstat(fd).st_size

    def load(self) -> Any:
        """Make the object: a new copy each time, whose large parts share memory with all others until written.

        Writing to an array or tensor copies the pages written; lists are :class:`SharedList`. Raises what the users'
        code raises, ImportError where it needs what is not here, ValueError for a file that is no payload.
        """
        mapped = mmap.mmap(
            self._fd, self._num_bytes, flags=mmap.MAP_PRIVATE | _NO_RESERVE, prot=mmap.PROT_READ | mmap.PROT_WRITE
        )
        mark, pickle_start, _, index_start, index_bytes = _HEAD.unpack_from(mapped)
        if mark != _MARK:
            raise ValueError("the file is no payload of this release")
        index = pickle.loads(mapped[index_start : index_start + index_bytes])
        mapped.seek(pickle_start)
        try:
            return _Unpickler(mapped, index).load()
        finally:
            check_sparse_tensors()


def pack(value: Any, what: str, *, ships_modules: bool = False) -> Payload:
    """Put an object by value, with what it needs, into a nameless file.

    What can be imported goes by name; ``ships_modules``: also the user's own modules by value. Arrays, tensors of the
    CPU and long lists of plain values lie apart, for :meth:`Opened.load` to share; maps of files go as names of the
    files. Takes about as much memory as the object has. Raises SpecError within about a second if a part cannot be
    sent: it names the innermost, reached from ``what``, why not, and what to do. Raises OSError without memory.
    """
    draft = _Draft()
    try:
        try:
            with _modules(ships_modules):
                take_apart(value, draft, ships_modules=ships_modules)
        except Exception as error:  # a user's __reduce__ and __getstate__ may raise anything
            if draft.is_full:
                raise
            raise SpecError(_refusal(error, value, what, ships_modules=ships_modules)) from error
        return draft.finish()
    finally:
        draft.close()


def fingerprint(value: Any, what: str = "", *, ships_modules: bool = False) -> bytes:
    """16 bytes that change when anything changes that :func:`pack` would send; the same for an unchanged object.

    Within one process. Large arrays and tensors are read once, at the memory's speed; of long lists the items' types
    and hashes, which strings keep, so that their text is not read again. What is neither costs what its pickle does.
    Raises SpecError as :func:`pack` does.
    """
    try:
        with _modules(ships_modules):
            return hash_of(value, ships_modules=ships_modules)
    except Exception as error:  # a user's __reduce__ and __getstate__ may raise anything
        raise SpecError(_refusal(error, value, what, ships_modules=ships_modules)) from error


def unpack(fd: int) -> Opened:
    """Open a payload; does not close ``fd``."""
    return Opened(fd)


def _modules(ships_modules: bool) -> AbstractContextManager[None]:
    return users_modules_by_value() if ships_modules else nullcontext()


def _refusal(error: Exception, value: Any, what: str, *, ships_modules: bool) -> str:
    found = blame_for(error, value, trial_of(ships_modules=ships_modules), ships_modules=ships_modules)
    path = f"{what}{found.path}" if what else found.path.removeprefix(".")
    if isinstance(error, DeviceError):
        remedy = "keep it on the CPU (.cpu()), and move batches to the device in the training loop"
    else:
        remedy = found.remedy if ships_modules else _REMEDY
    return f"{path} ({found.type_name}) cannot be sent to worker processes: {found.reason}; {remedy}"


@dataclass(frozen=True, slots=True)
class _Index:
    """Where the large parts lie: pairs of start and size."""

    buffers: array[int]
    storages: array[int]
    lists: tuple[tuple[Layout, array[int]], ...]


class _Draft:
    """A sink that writes a file. Arrays are only kept, and written when all of the object is known to be good."""

    def __init__(self) -> None:
        self.is_full = False
        self._file = MemoryFile()
        self._pickle = MemoryFile()
        self._buffers: list[memoryview] = []
        self._storages: list[memoryview] = []
        self._lists: list[tuple[Layout, array[int]]] = []
        self._file.write(bytes(_HEAD.size))

    def write(self, written: Any) -> int:
        try:
            return self._pickle.write(written)
        except OSError:
            self.is_full = True
            raise

    def take_buffer(self, content: memoryview) -> None:
        self._buffers.append(content)

    def take_storage(self, content: memoryview) -> None:
        self._storages.append(content)

    def take_list(self, items: Any, layout: Layout) -> None:
        before = self._file.num_bytes
        places: array[int] = array("q")
        try:
            for columns in columns_by_block(items, layout):
                for column, kind in zip(columns, layout.kinds, strict=True):
                    for buffer in flatten(column, kind):
                        self._append(buffer, places)
        except NotFlatError:
            self._file.cut(before)
            raise
        self._lists.append((layout, places))

    def _append(self, part: Any, places: array[int]) -> None:
        try:
            start = self._file.append(part)
        except OSError:
            self.is_full = True
            raise
        places.extend((start, self._file.num_bytes - start))

    def finish(self) -> Payload:
        index = _Index(self._placed(self._buffers), self._placed(self._storages), tuple(self._lists))
        pickle_bytes = self._pickle.num_bytes
        pickle_start = self._file.take_over(self._pickle)
        written = pickle.dumps(index, protocol=5)
        index_start = self._file.append(written)
        self._file.patch(0, _HEAD.pack(_MARK, pickle_start, pickle_bytes, index_start, len(written)))
        return Payload(self._file.seal(), self._file.num_bytes)

    def _placed(self, contents: list[memoryview]) -> array[int]:
        places: array[int] = array("q")
        for content in contents:
            self._append(content, places)
        contents.clear()
        return places

    def close(self) -> None:
        self._buffers.clear()
        self._storages.clear()
        self._file.close()
        self._pickle.close()


class _Unpickler(pickle.Unpickler):
    """Reads one copy of an object from a mapping, which its arrays, tensors and lists then keep."""

    def __init__(self, mapped: mmap.mmap, index: _Index) -> None:
        self._view = memoryview(mapped)
        super().__init__(mapped, buffers=self._parts(index.buffers))
        self._index = index
        self._storages: dict[int, Any] = {}
        self._lists: dict[int, SharedList] = {}

    def persistent_load(self, reference: Reference) -> Any:
        """Give the part that the pickle refers to: the same each time."""
        if isinstance(reference, int):
            if reference not in self._lists:
                layout, places = self._index.lists[reference]
                self._lists[reference] = SharedList(Flat(layout, self._parts(places)))
            return self._lists[reference]
        number, dtype = reference
        if number not in self._storages:
            [content] = self._parts(self._index.storages[2 * number : 2 * number + 2])
            self._storages[number] = make_storage(content)
        return with_dtype(self._storages[number], dtype)

    def find_class(self, module: str, name: str) -> Any:
        """Find all where it was, but for one function of torch."""
        return rebuild_tensor if name == "_rebuild_tensor_v3" else super().find_class(module, name)

    def _parts(self, places: array[int]) -> list[memoryview]:
        return [self._view[start : start + size] for start, size in zip(places[::2], places[1::2], strict=True)]
