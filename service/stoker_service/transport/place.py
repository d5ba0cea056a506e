"""Where in the arena an encoded batch lies."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from stoker.memory.arena import Arena
from stoker_proto.v1 import stream_pb2
from stoker_service.transport.encode import Encoded

MAX_INLINE_BYTES: Final = 256 << 10


def place(encoded: Encoded, arena: Arena) -> list[stream_pb2.Piece] | None:
    """Return the batch's pieces as places in the arena, what is small and outside as bytes.

    None if more than :data:`MAX_INLINE_BYTES` lie outside: the arena was full, or see :func:`bring`. The places hold
    for as long as ``encoded`` is kept.
    """
    pieces = []
    num_inline = 0
    for buffer in encoded.pieces:
        offset = arena.offset_of(buffer)
        if offset is not None:
            pieces.append(stream_pb2.Piece(offset=offset, num_bytes=buffer.size))
            continue
        num_inline += buffer.size
        if num_inline > MAX_INLINE_BYTES:
            return None
        pieces.append(stream_pb2.Piece(inline=buffer.to_pybytes()))
    return pieces


def bring(encoded: Encoded, arena: Arena) -> Encoded:
    """Copy what lies outside the arena into it, where that lets :func:`place` succeed and is the smaller part.

    Texts are made by Arrow in memory of its own: long captions beside pictures should not send the pictures through
    the socket. Returns ``encoded`` itself where there is nothing to do or no room.
    """
    outside = [i for i, buffer in enumerate(encoded.pieces) if arena.offset_of(buffer) is None]
    num_outside = sum(encoded.pieces[i].size for i in outside)
    if not MAX_INLINE_BYTES < num_outside <= encoded.num_bytes // 2:
        return encoded
    block = arena.allocate(num_outside)
    if block is None:
        return encoded
    pieces = list(encoded.pieces)
    start = 0
    for i in outside:
        stop = start + pieces[i].size
        block[start:stop] = np.frombuffer(pieces[i], np.uint8)
        pieces[i] = pa.py_buffer(block[start:stop])
        start = stop
    return Encoded(tuple(pieces), encoded.num_bytes)
