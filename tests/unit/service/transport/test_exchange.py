"""Slices and places through a real Flight exchange, as a worker and a client use them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from stoker.batch import BufferPool
from stoker.memory.arena import Arena
from stoker_proto.v1 import stream_pb2
from stoker_service.transport.arena_host import ArenaHost
from stoker_service.transport.arena_view import ArenaView
from stoker_service.transport.decode import Assembly
from stoker_service.transport.encode import MIN_SLICE_BYTES, SLICE_SCHEMA, Encoded, encode, slices
from stoker_service.transport.flight import connect
from stoker_service.transport.place import place
from support.batch_kinds import pictures

MAX_BYTES = 64 << 20


class Worker(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow carries no types
    """Sends one batch, which it forgets at once, as slices or as places."""

    def __init__(self, arena: Arena) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.arena = arena
        self.encoded: list[Encoded] = []

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        encoded = self.encoded[0]
        writer.begin(SLICE_SCHEMA)
        begin = stream_pb2.BatchBegin(num_bytes=encoded.num_bytes)
        if descriptor.command == b"arena":
            begin.pieces.extend(place(encoded, self.arena) or [])
            writer.write_metadata(stream_pb2.Message(batch=begin).SerializeToString())
            reader.read_chunk()  # it has copied
            return
        message = stream_pb2.Message(batch=begin)
        for part in slices(encoded, MIN_SLICE_BYTES):
            writer.write_with_metadata(part, message.SerializeToString())
            message = stream_pb2.Message(slice=stream_pb2.Slice())


@pytest.fixture
def worker() -> Iterator[Worker]:
    arena = Arena.create(MAX_BYTES)
    with Worker(arena) as made:
        yield made
    arena.close()


def receive(worker: Worker, command: bytes, view: ArenaView | None) -> pa.RecordBatch:
    with connect(f"grpc://127.0.0.1:{worker.port}") as client:
        writer, reader = client.do_exchange(
            flight.FlightDescriptor.for_command(command), flight.FlightCallOptions(timeout=30.0)
        )
        with writer:
            chunk = reader.read_chunk()
            begin = stream_pb2.Message.FromString(chunk.app_metadata.to_pybytes()).batch
            assembly = Assembly(begin.num_bytes, BufferPool())
            for piece in begin.pieces:
                assert view is not None
                assembly.add_bytes(piece.inline or view.view(piece.offset, piece.num_bytes))
            while assembly.num_missing:
                assembly.add(chunk.data)
                if assembly.num_missing:
                    chunk = reader.read_chunk()
            if view is not None:
                writer.write_metadata(stream_pb2.Credit(num_copied=1).SerializeToString())
            writer.done_writing()
    return assembly.finish()


@pytest.mark.parametrize("way", ["slices", "arena"])
def test_a_batch_arrives_and_its_memory_comes_back(worker: Worker, way: str) -> None:
    batch = pictures(1000, BufferPool(max_idle_bytes=0, allocate=worker.arena.allocate))
    worker.encoded.append(encode(batch))
    with ArenaHost(worker.arena) as host:
        view = ArenaView.open(host.socket_name, 5.0) if way == "arena" else None
    found = receive(worker, way.encode(), view)
    assert found.equals(batch, check_metadata=True)
    assert worker.arena.used_bytes > 1000 * 64 * 64 * 3
    worker.encoded.clear()
    del batch
    worker.shutdown()
    gc.collect()
    assert worker.arena.used_bytes == 0
