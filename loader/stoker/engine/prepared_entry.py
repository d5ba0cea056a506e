"""A chunk of samples behind the deterministic ops, as one object.

Header (magic, identity, bytes of the index and of it all, the index's crc32c), index (JSON: keys, and each row's
offset, bytes and crc32c), rows. So a row can be read and checked without the others.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from stoker.errors import DataError

_MAGIC: Final = b"STKDEC01"
_HEADER: Final = struct.Struct("<8s16sQQI")
HEADER_BYTES: Final = _HEADER.size
_ALIGNMENT: Final = 64


class EntryError(DataError):
    """An entry is not what it should be; it is left out, and the data are read instead."""


@dataclass(frozen=True, slots=True)
class Header:
    """How long the index is that follows, and the whole."""

    index_bytes: int
    num_bytes: int
    index_crc: int


@dataclass(frozen=True, slots=True)
class Index:
    """The samples' keys, and where their rows lie: offset, bytes, crc32c."""

    keys: tuple[str, ...]
    rows: tuple[tuple[int, int, int], ...]

    def checked(self, row: int, packed: bytes | memoryview) -> bytes | memoryview:
        """Return what was read of a row. Raises EntryError if it is something else."""
        _, num_bytes, crc = self.rows[row]
        if len(packed) != num_bytes or crc32c(packed) != crc:
            raise EntryError(f"row {row}: expected {num_bytes} bytes with crc32c {crc:#x}, found {len(packed)} others")
        return packed


def entry_bytes(identity: bytes, keys: Sequence[str], rows: Sequence[bytes]) -> bytes:
    """The object of a chunk; ``identity`` is of 16 bytes and says what it is made of."""
    places, num_bytes = [], 0
    for row in rows:
        places.append((num_bytes, len(row), crc32c(row)))
        num_bytes = aligned(num_bytes + len(row))
    text = json.dumps({"keys": list(keys), "rows": places}).encode()
    start = aligned(HEADER_BYTES + len(text))
    made = bytearray(start + num_bytes)
    _HEADER.pack_into(made, 0, _MAGIC, identity, len(text), len(made), crc32c(text))
    made[HEADER_BYTES : HEADER_BYTES + len(text)] = text
    for (offset, size, _), row in zip(places, rows, strict=True):
        made[start + offset : start + offset + size] = row
    return bytes(made)


def header_of(found: bytes | memoryview, identity: bytes) -> Header:
    """Read a header. Raises EntryError if it is none, or of something else."""
    if len(found) != HEADER_BYTES:
        raise EntryError(f"cut short: expected a header of {HEADER_BYTES} bytes, found {len(found)}")
    magic, whose, index_bytes, num_bytes, crc = _HEADER.unpack(found)
    if magic != _MAGIC or whose != identity:
        raise EntryError(f"expected an entry {_MAGIC!r} of {identity.hex()}, found {magic!r} of {whose.hex()}")
    return Header(index_bytes, num_bytes, crc)


def index_of(found: bytes | memoryview, header: Header) -> Index:
    """Read an index. Raises EntryError if it is damaged."""
    if len(found) != header.index_bytes or crc32c(found) != header.index_crc:
        raise EntryError(f"expected an index of {header.index_bytes} bytes, found {len(found)}, or others")
    index = json.loads(bytes(found))
    start = aligned(HEADER_BYTES + header.index_bytes)
    return Index(tuple(index["keys"]), tuple((start + row[0], row[1], row[2]) for row in index["rows"]))


def aligned(offset: int) -> int:
    """The next place where a row may begin."""
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
