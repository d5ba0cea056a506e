"""Shards that are gzip: decompressed whole, within a limit."""

from __future__ import annotations

import zlib

from stoker.errors import ShardError

MAX_CONTENT_BYTES = 1 << 30
_GZIP_WBITS = 31
_STEP_BYTES = 1 << 20

SLOW = "gzip shards are read and decompressed whole in every epoch, which is slow; `gunzip` them once"


def is_gzip(start: memoryview) -> bool:
    return bytes(start[:3]) == b"\x1f\x8b\x08"


def inflate(url: str, packed: memoryview, limit: int = MAX_CONTENT_BYTES) -> tuple[memoryview, bool]:
    """The content of one or several gzip members, and whether the last one was whole.

    What a broken stream gave before it broke is returned. Raises ShardError above ``limit`` bytes.
    """
    content = bytearray()
    stream = zlib.decompressobj(_GZIP_WBITS)
    position = 0
    piece: bytes | memoryview = b""
    try:
        while True:
            if not piece:
                piece = packed[position : position + _STEP_BYTES]
                position += len(piece)
            fresh = stream.decompress(piece, _STEP_BYTES)
            content += fresh
            if len(content) > limit:
                raise ShardError(
                    f"{url} decompresses to more than {limit} bytes, and a gzip shard must be held whole; gunzip it"
                )
            if stream.eof:
                piece = stream.unused_data.lstrip(b"\0")
                if not piece and position >= len(packed):
                    return memoryview(content).toreadonly(), True
                stream = zlib.decompressobj(_GZIP_WBITS)
            else:
                piece = stream.unconsumed_tail
                if not piece and len(fresh) < _STEP_BYTES and position >= len(packed):
                    return memoryview(content).toreadonly(), False
    except zlib.error:
        return memoryview(content).toreadonly(), False
