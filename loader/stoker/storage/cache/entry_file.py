"""One range as a file: a header that says what it is, then the bytes.

The header has 64 bytes: magic, digest of the key, length, crc32c of the bytes, crc32c of the header before it.
"""

from __future__ import annotations

import os
import struct
from typing import Final

import crc32c

_MAGIC: Final = b"STKRNGE1"
_HEADER: Final = struct.Struct("<8s32sQI")
_CHECK: Final = struct.Struct("<I8x")

HEADER_BYTES: Final = _HEADER.size + _CHECK.size
_MAX_WRITE = 1 << 30


def write_entry(path: str, digest: bytes, payload: memoryview) -> None:
    """Make the file; what lies there already is an error. Nothing is synced: reads find out what a crash left."""
    header = _header(digest, payload)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        for part in (memoryview(header), payload.cast("B")):
            done = 0
            while done < part.nbytes:
                done += os.write(fd, part[done : done + _MAX_WRITE])
    finally:
        os.close(fd)


def read_entry(path: str, digest: bytes, num_bytes: int) -> memoryview | None:
    """The bytes, if the file is whole and holds this range; None if it does not. OSError where it cannot be read."""
    # A symbolic link or a pipe is not ours; neither may lead elsewhere or block.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(fd, "rb", buffering=0) as file:
        if os.fstat(fd).st_size != HEADER_BYTES + num_bytes:
            return None
        whole = memoryview(file.readall())
    payload = whole[HEADER_BYTES:]
    if payload.nbytes != num_bytes or whole[:HEADER_BYTES] != _header(digest, payload):
        return None
    return payload


def _header(digest: bytes, payload: memoryview) -> bytes:
    start = _HEADER.pack(_MAGIC, digest, payload.nbytes, crc32c.crc32c(payload))
    return start + _CHECK.pack(crc32c.crc32c(start))
