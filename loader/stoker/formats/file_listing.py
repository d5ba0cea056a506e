"""Listing files: one path, perhaps with a label, per line."""

from __future__ import annotations

import csv
from collections.abc import Iterator

import pyarrow as pa

from stoker.errors import ShardError
from stoker.formats import stamp
from stoker.formats.file_table import SCHEMA, FileTable, make_table
from stoker.formats.folder_listing import extension_of
from stoker.formats.source import Files, folder_of
from stoker.formats.stores import Stores, is_local
from stoker.storage.urls import normalize

_DELIMITERS = {"csv": ",", "tsv": "\t", "txt": "\t", "lst": "\t"}
_PATH_COLUMNS = frozenset({"path", "file", "filename", "file_name", "image", "image_path", "url"})
_LABEL_COLUMNS = frozenset({"label", "cls", "class", "target"})


def read_listing(source: Files, stores: Stores) -> FileTable:
    """Read a listing and look up the size of every file in it. Raises ShardError that names a line that is wrong."""
    url = normalize(source.url)
    stamped = stamp.of_source(source, stores)
    folder = folder_of(source)
    try:
        text = bytes(stores.read(url, 0, stamped["size_bytes"])).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ShardError(f"{url} is no UTF-8 text: byte {error.start}; save it as UTF-8") from error
    lines = list(parse(url, text))
    if not lines:
        raise ShardError(f"{url} lists no file; expected lines of path[,label]")
    urls = [_place(folder, path) for path, _ in lines]
    entries = stores.heads(urls)
    sizes = [entry.size_bytes for entry in entries]
    versions = [None if is_local(entry.url) else entry.version for entry in entries]
    paths = [place.removeprefix(folder) for place in urls]
    labels = [label for _, label in lines]
    columns = [
        pa.array(values, kind) for values, kind in zip((paths, sizes, labels, versions), SCHEMA.types, strict=True)
    ]
    return make_table(folder, pa.Table.from_arrays(columns, schema=SCHEMA), (), stamped)


def parse(url: str, text: str) -> Iterator[tuple[str, str | None]]:
    """The paths with their labels; pure. A first line such as ``path,label`` is a header."""
    delimiter = _DELIMITERS[extension_of(url)]
    lines = text.splitlines()
    if delimiter == ",":
        reader = csv.reader(lines)
    else:
        reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    for cells in reader:
        if not cells or cells == [""]:
            continue
        if reader.line_num == 1 and _is_header(cells):
            continue
        if len(cells) > 2:
            raise ShardError(f"{url} line {reader.line_num}: {len(cells)} columns, expected path[{delimiter!r} label]")
        path = cells[0].strip()
        if not extension_of(path):
            raise ShardError(f"{url} line {reader.line_num}: {path!r} has no extension to name its field after")
        label = cells[1].strip() if len(cells) == 2 else ""
        yield path, label or None


def _is_header(cells: list[str]) -> bool:
    names = [cell.strip().lower() for cell in cells]
    return names[0] in _PATH_COLUMNS and (len(names) == 1 or names[1] in _LABEL_COLUMNS)


def _place(folder: str, path: str) -> str:
    return normalize(path) if "://" in path or path.startswith("/") else folder + path
