"""Where a batch lies in the arena, read by another as the same batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from stoker.batch import BatchBuilder, BufferPool
from stoker.memory.arena import Arena
from stoker_proto.v1 import stream_pb2
from stoker_service.transport.arena_host import ArenaHost
from stoker_service.transport.arena_view import ArenaView
from stoker_service.transport.decode import Assembly
from stoker_service.transport.encode import Encoded, encode
from stoker_service.transport.place import bring, place
from support.batch_kinds import of_every_kind, pictures
from support.samples import Picture, sample

MAX_BYTES = 64 << 20
KINDS = of_every_kind()


@pytest.fixture
def arena() -> Iterator[Arena]:
    made = Arena.create(MAX_BYTES)
    yield made
    made.close()


def read(pieces: list[stream_pb2.Piece], num_bytes: int, view: ArenaView) -> pa.RecordBatch:
    """The batch as a client puts it together."""
    assembly = Assembly(num_bytes, BufferPool())
    for piece in pieces:
        assembly.add_bytes(piece.inline or view.view(piece.offset, piece.num_bytes))
    return assembly.finish()


def open_view(arena: Arena) -> ArenaView:
    with ArenaHost(arena) as host:
        return ArenaView.open(host.socket_name, 5.0)


def captioned(num_rows: int, caption: str, pool: BufferPool) -> pa.RecordBatch:
    builder = BatchBuilder(num_rows, pool, {})
    for i in range(num_rows):
        builder.put(i, sample(i, image=Picture((64, 64, 3), i % 251), caption=caption))
    return builder.finish(np.arange(num_rows), None, {})


def test_a_batch_is_read_where_it_was_built(arena: Arena) -> None:
    batch = pictures(500, BufferPool(allocate=arena.allocate))
    encoded = encode(batch)
    pieces = place(encoded, arena)
    assert pieces is not None
    assert sum(piece.num_bytes for piece in pieces) >= 500 * 64 * 64 * 3
    assert sum(len(piece.inline) for piece in pieces) < 64 << 10
    found = read(pieces, encoded.num_bytes, open_view(arena))
    assert found.equals(batch, check_metadata=True)


@pytest.mark.parametrize("name", KINDS)
def test_small_batches_travel_inline(arena: Arena, name: str) -> None:
    encoded = encode(KINDS[name])
    pieces = place(encoded, arena)
    assert pieces is not None
    assert read(pieces, encoded.num_bytes, open_view(arena)).equals(KINDS[name], check_metadata=True)


def test_a_batch_outside_has_no_place(arena: Arena) -> None:
    encoded = encode(pictures(500))
    assert place(encoded, arena) is None
    assert bring(encoded, arena) is encoded  # the larger part is outside: the arena was full when it was built


def test_long_texts_are_brought_into_the_arena(arena: Arena) -> None:
    batch = captioned(500, "x" * 3000, BufferPool(allocate=arena.allocate))
    encoded = encode(batch)
    assert place(encoded, arena) is None
    brought = bring(encoded, arena)
    pieces = place(brought, arena)
    assert pieces is not None
    assert not any(piece.inline for piece in pieces)
    assert read(pieces, brought.num_bytes, open_view(arena)).equals(batch, check_metadata=True)
    del batch, encoded, brought
    assert arena.used_bytes == 0


def test_what_does_not_fit_is_left_outside() -> None:
    arena = Arena.create(500 * 64 * 64 * 3 + (1 << 20))
    batch = captioned(500, "x" * 3000, BufferPool(allocate=arena.allocate))
    encoded = encode(batch)
    assert bring(encoded, arena) is encoded
    arena.close()


def test_the_encoded_bytes_keep_their_place(arena: Arena) -> None:
    encoded = encode(pictures(500, BufferPool(max_idle_bytes=0, allocate=arena.allocate)))
    assert arena.used_bytes > 500 * 64 * 64 * 3
    assert isinstance(encoded, Encoded)
    del encoded
    assert arena.used_bytes < 500 * 64 * 64 * 3
