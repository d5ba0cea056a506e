"""A real worker, and hands to call it with."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

import stoker
from stoker.batch.pool import BufferPool
from stoker_proto.v1 import stream_pb2
from stoker_service import versions
from stoker_service.options import WorkerOptions
from stoker_service.transport import code
from stoker_service.transport import flight as calls
from stoker_service.transport.arena_view import ArenaView
from stoker_service.transport.decode import Assembly
from stoker_service.worker.server import WorkerServer
from support.streams import make_pictures, pictures

WAIT_S = 20.0
NOBODY = "stoker://127.0.0.1:1"
NUM_SAMPLES = 240


class Call:
    """One stream, as a client holds it."""

    def __init__(self, client: flight.FlightClient, request: stream_pb2.StreamRequest | bytes) -> None:
        command = request if isinstance(request, bytes) else request.SerializeToString()
        descriptor = flight.FlightDescriptor.for_command(command)
        self.writer, self.reader = client.do_exchange(descriptor, flight.FlightCallOptions(timeout=WAIT_S))
        self.beats: list[stream_pb2.Beat] = []

    def credit(self, num_batches: int = 0, num_copied: int = 0) -> None:
        credit = stream_pb2.Credit(num_batches=num_batches, num_copied=num_copied)
        self.writer.write_metadata(credit.SerializeToString())

    def message(self) -> tuple[stream_pb2.Message, pa.RecordBatch | None]:
        """The next message that is no beat. Raises StopIteration at the end."""
        while True:
            chunk = self.reader.read_chunk()
            message = stream_pb2.Message.FromString(chunk.app_metadata.to_pybytes())
            if message.WhichOneof("kind") != "beat":
                return message, chunk.data
            self.beats.append(message.beat)

    def begin(self) -> tuple[stream_pb2.BatchBegin, pa.RecordBatch | None]:
        message, part = self.message()
        assert message.WhichOneof("kind") == "batch", message
        return message.batch, part

    def batch(self, arena: ArenaView | None = None) -> tuple[stream_pb2.BatchBegin, pa.RecordBatch]:
        """The next batch, whichever way it comes."""
        begin, part = self.begin()
        assembly = Assembly(begin.num_bytes, BufferPool())
        if begin.pieces:
            assert arena is not None
            for piece in begin.pieces:
                assembly.add_bytes(piece.inline or arena.view(piece.offset, piece.num_bytes))
            assert arena.holds(begin.seal)
            return begin, assembly.finish()
        while True:
            if part is not None:
                assembly.add(part)
            if not assembly.num_missing:
                return begin, assembly.finish()
            message, part = self.message()
            assert message.WhichOneof("kind") == "slice", message

    def error(self) -> stream_pb2.Error:
        """The error that ends the stream."""
        message, _ = self.message()
        assert message.WhichOneof("kind") == "error", message
        self.end()
        return message.error

    def end(self) -> None:
        """Nothing more comes once the client hangs up."""
        self.writer.done_writing()
        with pytest.raises(StopIteration):
            self.message()

    def close(self) -> None:
        with contextlib.suppress(pa.ArrowException, OSError):
            self.reader.cancel()


class Hands:
    """A worker with a client of it."""

    def __init__(self, server: WorkerServer) -> None:
        self.server = server
        self.client = calls.connect(server.location)
        self.calls: list[Call] = []

    def describe(self, pipeline: stoker.Pipeline | stream_pb2.Pipeline) -> list[stream_pb2.Description]:
        message = pipeline if isinstance(pipeline, stream_pb2.Pipeline) else code.pack(pipeline)
        body = stream_pb2.DescribeRequest(pipeline=message).SerializeToString()
        answers = calls.act(self.client, self.server.location, calls.DESCRIBE, body, WAIT_S)
        return [stream_pb2.Description.FromString(answer) for answer in answers]

    def hello(self) -> stream_pb2.WorkerHello:
        (answer,) = calls.act(self.client, self.server.location, calls.HELLO, b"", WAIT_S)
        return stream_pb2.WorkerHello.FromString(answer)

    def request(self, spec: stoker.Pipeline, lane: int = 0, **changes: Any) -> stream_pb2.StreamRequest:
        """What a client of one rank asks for a lane of a whole epoch."""
        num_samples = changes.pop("num_samples", NUM_SAMPLES)
        dataset = changes.pop("dataset", None) or self.describe(spec)[-1].dataset
        found = stream_pb2.StreamRequest(
            version=versions.ours(),
            pipeline=code.pack(spec),
            dataset=dataset,
            ranges=[0, num_samples],
            batch_size=spec.batch_size,
            num_lanes=spec.lanes,
            tail="short",
            batch_start=lane,
            batch_stop=-(-num_samples // spec.batch_size),
            batch_stride=spec.lanes,
        )
        for name, value in changes.items():
            if name == "ranges":
                del found.ranges[:]
                found.ranges.extend(value)
            elif isinstance(value, int | str | bytes | bool):
                setattr(found, name, value)
            else:
                getattr(found, name).CopyFrom(value)
        return found

    def open(self, request: stream_pb2.StreamRequest | bytes) -> Call:
        call = Call(self.client, request)
        self.calls.append(call)
        return call

    def close(self) -> None:
        for call in self.calls:
            call.close()
        self.client.close()


Start = Callable[..., Hands]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts workers, each with a client; ends them all."""
    started: list[Hands] = []

    def start_one(dispatcher: str = NOBODY, **options: Any) -> Hands:
        server = WorkerServer(WorkerOptions(dispatcher, **{"num_threads": 2, **options}))
        server.start()
        started.append(Hands(server))
        return started[-1]

    yield start_one
    for hands in started:
        hands.close()
        hands.server.stop()
    for thread in threading.enumerate():
        if thread.name.startswith("stoker-") and thread.name != "stoker-open":
            thread.join(WAIT_S)
            assert not thread.is_alive(), f"{thread.name} is left"


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_pictures(tmp_path_factory.mktemp("worker-shards"))


@pytest.fixture(scope="session")
def pipeline(shards: str) -> stoker.Pipeline:
    return pictures(shards, lanes=3)
