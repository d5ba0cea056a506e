"""How the bytes of a result lie in a message.

``head_end, num_buffers | head | table | padding | inline bytes``: the head is a pickle without its large buffers; the
table has a row for each of them, in the order in which the pickle asks for them, which is either a place in the arena
or says that the bytes follow, each from a multiple of 64 on, counted from the beginning of the message. Both sides are
of one release, so nothing tells versions apart.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

ALIGNMENT_BYTES: Final = 64  # of a cache line and the widest vector register
INLINE: Final = -1
HEADER: Final = struct.Struct("<QQ")
_ROW: Final = struct.Struct("<qQ")


class Place(NamedTuple):
    """Where a buffer is: ``offset`` in the arena, or :data:`INLINE`."""

    offset: int
    num_bytes: int


def begun() -> io.BytesIO:
    """Return a file to which a head can be written."""
    file = io.BytesIO()
    file.write(HEADER.pack(HEADER.size, 0))
    return file


def finished(
    file: io.BytesIO, places: Sequence[Place], inline: Iterable[bytes | memoryview]
) -> list[bytes | memoryview]:
    """Return the parts of a message whose head was written to ``file``."""
    if not places:
        file.getbuffer()[: HEADER.size] = HEADER.pack(file.tell(), 0)
        return [file.getbuffer()]
    head_end = file.tell()
    file.write(b"".join(_ROW.pack(*place) for place in places))
    num_bytes = file.tell()
    written = file.getbuffer()
    written[: HEADER.size] = HEADER.pack(head_end, len(places))
    parts: list[bytes | memoryview] = [written]
    for part in inline:
        padding = -num_bytes % ALIGNMENT_BYTES
        parts += (bytes(padding), part) if padding else (part,)
        num_bytes += padding + len(part)
    return parts


class Parsed(NamedTuple):
    """``head`` is the pickle; ``inline_start`` is where the inline bytes begin, padding included."""

    head: memoryview
    places: list[Place]
    inline_start: int


def parse(body: memoryview) -> Parsed:
    """Take a message apart."""
    head_end, num_buffers = HEADER.unpack_from(body)
    table_end = head_end + num_buffers * _ROW.size
    rows = _ROW.iter_unpack(body[head_end:table_end]) if num_buffers else ()
    return Parsed(body[HEADER.size : head_end], [Place(*row) for row in rows], table_end)


def inline_ranges(places: Iterable[Place], start: int) -> list[tuple[int, int]]:
    """Where in the message the inline bytes of each place lie that has such, in their order."""
    ranges = []
    for place in places:
        if place.offset == INLINE:
            start += -start % ALIGNMENT_BYTES
            ranges.append((start, start + place.num_bytes))
            start += place.num_bytes
    return ranges
