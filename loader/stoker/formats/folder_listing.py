"""The files below a folder or a prefix in a bucket, with the classes that the folders name."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from stoker.errors import NotFoundError, ShardError, SpecError
from stoker.formats import stamp
from stoker.formats.file_table import SCHEMA, FileTable, make_table
from stoker.formats.source import Files, folder_of
from stoker.formats.stores import Stores, is_local
from stoker.storage.store import ObjectInfo

_BLOCK = 1 << 16


def list_folder(source: Files, stores: Stores, on_rows: Callable[[int], None]) -> FileTable:
    """List what a source's folder holds. Raises NotFoundError if that is nothing, and errors about classes."""
    folder = folder_of(source)
    stamped = stamp.of_source(source, stores)
    wanted = frozenset(extension.lower().lstrip(".") for extension in source.extensions)
    others: list[str] = []
    paths = _Strings(pa.large_string())
    sizes = array("q")
    versions = _Strings(pa.large_string())
    for path, entry in _visible(stores, folder):
        if extension_of(path) in wanted:
            _check_name(folder, path)
            paths.append(path)
            sizes.append(entry.size_bytes)
            versions.append(None if is_local(folder) else entry.version)
            if len(sizes) % _BLOCK == 0:
                on_rows(len(sizes))
        elif len(others) < 3:
            others.append(path)
    if not sizes:
        found = f"only other files, such as {', '.join(others)}" if others else "nothing"
        raise NotFoundError(
            f"{folder} holds no file with an extension of {', '.join(sorted(wanted))}; it holds {found}. "
            "Check the path, or name extensions=(…)"
        )
    path = paths.finish()
    classes, label = _labels(source, folder, path)
    size = pa.array(np.frombuffer(sizes, np.int64))
    rows = pa.Table.from_arrays([path, size, label, versions.finish()], schema=SCHEMA)
    return make_table(folder, rows, classes, stamped)


def extension_of(path: str) -> str:
    """What follows the last dot of the base name, in lower case; empty if there is none."""
    base = path.rpartition("/")[2]
    return base.rpartition(".")[2].lower() if "." in base else ""


def _visible(stores: Stores, folder: str) -> Iterator[tuple[str, ObjectInfo]]:
    for entry in stores.of(folder).list(folder):
        path = entry.url[len(folder) :]
        if path and not path.startswith(".") and "/." not in path:
            yield path, entry


def _check_name(folder: str, path: str) -> None:
    if not path.isascii():
        try:
            path.encode()
        except UnicodeEncodeError:
            raise ShardError(f"{folder}: the name {path!r} is no UTF-8; rename the file") from None


def _labels(source: Files, folder: str, path: pa.ChunkedArray) -> tuple[tuple[str, ...], pa.ChunkedArray]:
    """Number the folder just below the top, in sorted order as torchvision does, or in the order of ``classes``."""
    rule = source.labels
    if rule == "none":
        return (), pa.chunked_array([pa.nulls(len(path), pa.string())])
    folders = set(_tops(path))
    loose = next((name for name in _paths(path) if "/" not in name), None) if "" in folders else None
    folders.discard("")
    if rule == "auto" and not folders:
        return (), pa.chunked_array([pa.nulls(len(path), pa.string())])
    if loose is not None:
        raise ShardError(
            f"{folder} has files in class folders and files beside them, such as {loose!r}; move these away, or pass "
            'labels="none"'
        )
    classes = source.classes if source.classes is not None else tuple(sorted(folders))
    if unknown := sorted(folders.difference(classes)):
        raise SpecError(f"folder {unknown[0]!r} below {folder} is none of the {len(classes)} classes=(…) of files()")
    numbers = {name: str(number) for number, name in enumerate(classes)}
    label = _Strings(pa.string())
    for name in _tops(path):
        label.append(numbers[name])
    return classes, label.finish()


def _tops(path: pa.ChunkedArray) -> Iterator[str]:
    return (name.partition("/")[0] if "/" in name else "" for name in _paths(path))


def _paths(path: pa.ChunkedArray) -> Iterator[str]:
    for chunk in path.chunks:
        yield from chunk.to_pylist()


class _Strings:
    """Builds a column of strings without holding them all as Python objects."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._chunks: list[pa.Array] = []
        self._block: list[str | None] = []

    def append(self, text: str | None) -> None:
        self._block.append(text)
        if len(self._block) >= _BLOCK:
            self._flush()

    def finish(self) -> pa.ChunkedArray:
        self._flush()
        return pa.chunked_array(self._chunks, self._kind)

    def _flush(self) -> None:
        self._chunks.append(pa.array(self._block, self._kind))
        self._block = []
