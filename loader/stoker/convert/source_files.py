"""The objects that a source of records consists of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b

from stoker.formats.stores import Stores
from stoker.storage.store import ObjectInfo


def list_folder(stores: Stores, folder: str) -> Iterator[ObjectInfo]:
    """What lies below a folder, without hidden names."""
    found = stores.of(folder).list(folder)
    return (entry for entry in found if not _is_hidden(entry.url.removeprefix(folder)))


def read(stores: Stores, entry: ObjectInfo, start: int, stop: int) -> memoryview:
    """A range of an object that must not have changed since it was listed."""
    return stores.read(entry.url, start, stop, entry.version)


def read_whole(stores: Stores, entry: ObjectInfo) -> memoryview:
    """All bytes of an object, which must not have changed since it was listed."""
    return read(stores, entry, 0, entry.size_bytes) if entry.size_bytes else memoryview(b"")


def digest_of(kind: str, folder: str, entries: Sequence[ObjectInfo], extra: Sequence[str] = ()) -> str:
    """Identity of these objects, by names, sizes and versions."""
    hasher = blake2b(f"{kind}\n".encode(), digest_size=16)
    for entry in entries:
        line = f"{entry.url.removeprefix(folder)}\0{entry.size_bytes}\0{entry.version}\n"
        hasher.update(line.encode("utf-8", "surrogateescape"))
    for text in extra:
        hasher.update(f"{text}\n".encode("utf-8", "surrogateescape"))
    return hasher.hexdigest()


def _is_hidden(path: str) -> bool:
    return path.startswith(".") or "/." in path
