"""Where the record batches of an Arrow file lie, found without reading their bodies.

After the Arrow columnar format, "IPC Streaming Format": a message is a continuation marker, the length of its metadata,
the metadata (a flatbuffer) and a body. A file in the random access format is the same behind a magic of 8 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from stoker.errors import ShardError

_MAGIC = b"ARROW1\0\0"
_CONTINUATION = 0xFFFFFFFF
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_HEAD_BYTES = 64 << 10

Read = Callable[[int, int], memoryview]


@dataclass(frozen=True, slots=True)
class Batch:
    """A record batch: the bytes ``[start, stop)`` of its message, and its rows."""

    start: int
    stop: int
    num_rows: int


@dataclass(frozen=True, slots=True)
class Stream:
    """The batches of a file, with the messages (schema, dictionaries) that have to stand before any of them."""

    before: tuple[tuple[int, int], ...]
    batches: tuple[Batch, ...]


def scan(url: str, read: Read, size_bytes: int) -> Stream:
    """Walk over the messages of a file. Raises ShardError if it is none, or is cut."""
    position = len(_MAGIC) if bytes(read(0, min(len(_MAGIC), size_bytes))) == _MAGIC else 0
    before: list[tuple[int, int]] = []
    batches: list[Batch] = []
    while position + 8 <= size_bytes:
        head = read(position, min(position + _HEAD_BYTES, size_bytes))
        marker, length = struct.unpack_from("<II", head)
        skip = 8
        if marker != _CONTINUATION:  # written before Arrow 0.15: the length alone
            length, skip = marker, 4
        if length == 0:
            break
        if skip + length > len(head):
            head = read(position, min(position + skip + length, size_bytes))
        try:
            kind, num_rows, body_bytes = _message(head[skip : skip + length])
        except (struct.error, IndexError) as error:
            raise ShardError(f"{url}: no Arrow message at byte {position}") from error
        stop = position + skip + length + body_bytes
        if stop > size_bytes:
            raise ShardError(f"{url} is cut at byte {size_bytes}: the batch at byte {position} ends at byte {stop}")
        if kind == _BATCH:
            batches.append(Batch(position, stop, num_rows))
        elif kind in (_SCHEMA, _DICTIONARY):
            before.append((position, stop))
        else:
            raise ShardError(f"{url}: an Arrow message of the unknown kind {kind} at byte {position}")
        position = stop
    if not before:
        raise ShardError(f"{url} is no Arrow file: there is no schema at its beginning")
    return Stream(tuple(before), tuple(batches))


def _message(metadata: memoryview) -> tuple[int, int, int]:
    """Kind, rows (of a batch) and length of the body of a message."""
    (root,) = struct.unpack_from("<I", metadata)
    kind_at, header_at, body_at = (_slot(metadata, root, number) for number in (1, 2, 3))
    kind = metadata[kind_at] if kind_at else 0
    (body_bytes,) = struct.unpack_from("<q", metadata, body_at) if body_at else (0,)
    num_rows = 0
    if kind == _BATCH and header_at:
        (offset,) = struct.unpack_from("<I", metadata, header_at)
        length_at = _slot(metadata, header_at + offset, 0)
        (num_rows,) = struct.unpack_from("<q", metadata, length_at) if length_at else (0,)
    if body_bytes < 0 or num_rows < 0:
        raise IndexError("a negative length")
    return kind, num_rows, body_bytes


def _slot(metadata: memoryview, table: int, number: int) -> int:
    """Where a field of a flatbuffer's table stands; 0 if it has its default."""
    (back,) = struct.unpack_from("<i", metadata, table)
    vtable = table - back
    (vtable_bytes,) = struct.unpack_from("<H", metadata, vtable)
    place = 4 + 2 * number
    if place + 2 > vtable_bytes:
        return 0
    (offset,) = struct.unpack_from("<H", metadata, vtable + place)
    return table + offset if offset else 0
