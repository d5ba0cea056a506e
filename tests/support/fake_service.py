"""Real servers that do what a test tells them: a Flight server that is a worker, a gRPC server that is a dispatcher.

A :class:`FakeWorker` speaks stream.proto with batches that :func:`content` makes. What it does at a batch can be
scripted: it leaves, fails, goes silent, breaks the stream, or sends what no worker should.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
from pyarrow import flight

from stoker.errors import StokerError
from stoker.memory.arena import Arena
from stoker_proto.v1 import control_pb2, control_pb2_grpc, stream_pb2
from stoker_service.transport.arena_host import ArenaHost
from stoker_service.transport.encode import SLICE_SCHEMA, Encoded, encode, slices
from stoker_service.transport.errors import to_wire
from stoker_service.transport.host import host_id
from stoker_service.transport.place import bring, place

WAIT_S = 20.0
"""No test waits longer for what it expects."""

BEAT_S = 0.25


def content(epoch: int, batch_index: int, num_bytes: int = 64) -> pa.RecordBatch:
    """The batch of this place: which it is, and bytes that depend on it."""
    seed = np.random.default_rng([epoch, batch_index])
    pixels = seed.integers(0, 256, num_bytes, np.uint8)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([epoch], pa.int64()),
            pa.array([batch_index], pa.int64()),
            pa.FixedSizeListArray.from_arrays(pa.array(pixels), num_bytes),
        ],
        names=["epoch", "batch", "pixels"],
    )


# -- what a worker does at a batch -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Leave:
    """Says that it leaves, and ends the stream."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Says that the batch cannot be made."""

    error: StokerError


@dataclass(frozen=True, slots=True)
class Break:
    """Ends the stream with an error of the server's, after so many slices of the batch."""

    after_slices: int = 0


@dataclass(frozen=True, slots=True)
class End:
    """Ends the stream as if all was said."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Goes on beating, and makes the batch when the event is set."""

    until: threading.Event


@dataclass(frozen=True, slots=True)
class Silence:
    """Neither beats nor sends until the event is set; after so many slices of the batch."""

    until: threading.Event
    after_slices: int = 0


@dataclass(frozen=True, slots=True)
class Say:
    """Sends this message instead of the batch."""

    message: stream_pb2.Message


Deed = Leave | Fail | Break | End | Hold | Silence | Say
Script = Callable[[stream_pb2.StreamRequest, int], Deed | None]
"""What to do at a batch of a stream, instead of making it; None makes it."""


@dataclass(slots=True)
class StreamRecord:
    """What happened on one stream."""

    request: stream_pb2.StreamRequest
    sent: list[int] = field(default_factory=list)
    num_credits: int = 0
    most_credits: int = 0
    num_copied: int = 0
    is_over: bool = False


class FakeWorker(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow carries no types
    """A worker on loopback."""

    def __init__(
        self,
        worker_id: str = "worker-1",
        *,
        script: Script = lambda _request, _index: None,
        num_bytes: int = 64,
        num_samples: int = 240,
        protocol: int = 1,
        arena_bytes: int = 0,
        port: int = 0,
    ) -> None:
        super().__init__(f"grpc://127.0.0.1:{port}")
        self.worker_id = worker_id
        self.location = f"grpc://127.0.0.1:{self.port}"
        self.script = script
        self.num_bytes = num_bytes
        self.num_samples = num_samples
        self.protocol = protocol
        self.streams: list[StreamRecord] = []
        self.num_hellos = 0
        self.descriptions: list[stream_pb2.Description] = []
        self.arena = Arena.create(arena_bytes) if arena_bytes else None
        self.arena_host = ArenaHost(self.arena) if self.arena else None
        self.extra: dict[str, Any] = {}
        self.life = ""
        self.breaks_seals = 0
        self._closing = threading.Event()

    def close(self) -> None:
        """End, streams and all."""
        self._closing.set()
        self.shutdown()
        if self.arena_host is not None:
            self.arena_host.close()

    # -- actions

    def do_action(self, context: Any, action: flight.Action) -> Iterator[bytes]:
        if action.type == "hello":
            self.num_hellos += 1
            yield stream_pb2.WorkerHello(
                version=control_pb2.Version(protocol=self.protocol, oldest_protocol=self.protocol, release="9.9"),
                worker_id=self.worker_id,
                host_id=host_id(),
                arena_socket=self.arena_host.socket_name if self.arena_host else "",
                beat_ms=int(BEAT_S * 1000),
                life=self.life,
            ).SerializeToString()
            return
        described = self.descriptions or [stream_pb2.Description(dataset="d" * 32, num_samples=self.num_samples)]
        for description in described:
            yield description.SerializeToString()

    # -- streams

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        request = stream_pb2.StreamRequest.FromString(descriptor.command)
        record = StreamRecord(request)
        self.streams.append(record)
        credits_ = _Credits(reader, record)
        try:
            self._serve(record, _Sender(writer), credits_)
        finally:
            credits_.close()
            record.is_over = True

    def _serve(self, record: StreamRecord, sender: _Sender, credits_: _Credits) -> None:
        request = record.request
        for index in range(request.batch_start, request.batch_stop, request.batch_stride):
            while record.num_credits <= len(record.sent):
                if not self._await_credit(record, sender, credits_):
                    return
            deed = self.script(request, index)
            if isinstance(deed, Hold):
                while not deed.until.wait(BEAT_S / 2):
                    if self._closing.is_set():
                        return
                    sender.say(stream_pb2.Message(beat=stream_pb2.Beat(waits_for="decode", text="a picture")))
                deed = None
            if not self._act(deed, record, sender, index):
                if isinstance(deed, Break | End | Silence):
                    return
                break
            record.sent.append(index)
        while self._await_credit(record, sender, credits_):
            pass  # the client hangs up; to end first would let it lose what is on its way, if it sends a credit then

    def _await_credit(self, record: StreamRecord, sender: _Sender, credits_: _Credits) -> bool:
        try:
            if not credits_.more():
                return False
        except queue.Empty:
            if self._closing.is_set():
                sender.say(stream_pb2.Message(leaving=stream_pb2.Leaving()))  # the end waits for who does not hang up
                return False
            sender.say(stream_pb2.Message(beat=stream_pb2.Beat(waits_for="credit")))
        record.most_credits = max(record.most_credits, record.num_credits - len(record.sent))
        return True

    def _act(self, deed: Deed | None, record: StreamRecord, sender: _Sender, index: int) -> bool:
        """Do it; False ends the stream."""
        match deed:
            case None:
                self._send(record, sender, index, None, lambda: None)
                return True
            case Leave():
                sender.say(stream_pb2.Message(leaving=stream_pb2.Leaving()))
            case Fail(error):
                sender.say(stream_pb2.Message(error=to_wire(error)))
            case Break(after_slices):
                self._send(record, sender, index, after_slices, lambda: None)
                raise RuntimeError("told to break")
            case Silence(until, after_slices):
                self._send(record, sender, index, after_slices, lambda: self._be_silent(until))
            case Say(message):
                sender.say(message)
            case End() | Hold():
                pass
        return False

    def _be_silent(self, until: threading.Event) -> None:
        while not until.wait(0.05) and not self._closing.is_set():
            pass

    def _send(
        self,
        record: StreamRecord,
        sender: _Sender,
        index: int,
        most_slices: int | None,
        then: Callable[[], None],
    ) -> None:
        encoded = encode(content(record.request.epoch, index, self.num_bytes))
        begin = stream_pb2.BatchBegin(batch_index=index, num_bytes=encoded.num_bytes, **self.extra)
        if self.arena is not None and record.request.takes_arena and most_slices is None:
            block = self.arena.allocate(encoded.num_bytes)
            assert block is not None
            block[:] = np.frombuffer(b"".join(piece.to_pybytes() for piece in encoded.pieces), np.uint8)
            moved = bring(Encoded((pa.py_buffer(block),), encoded.num_bytes), self.arena)
            begin.pieces.extend(place(moved, self.arena) or [])
            begin.seal = self.arena.seals.make() or 0
            if self.breaks_seals:
                self.breaks_seals -= 1
                self.arena.seals.break_seal(begin.seal)
            _KEPT.append(block)
            sender.say(stream_pb2.Message(batch=begin))
            return
        for number, part in enumerate(slices(encoded, 1 << 20)):
            if number == most_slices:
                break
            kind = {"slice": stream_pb2.Slice()} if number else {"batch": begin}
            sender.send(part, stream_pb2.Message(**kind))
        then()


_KEPT: list[Any] = []


class _Credits:
    """Reads credits, one at a time and when asked: Flight aborts the process if a call ends under its reader."""

    def __init__(self, reader: Any, record: StreamRecord) -> None:
        self._reader = reader
        self._record = record
        self._wanted: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._read: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._is_reading = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def more(self) -> bool:
        """Wait for a credit; False when the client has hung up. Raises queue.Empty after a beat."""
        if not self._is_reading:
            self._is_reading = True
            self._wanted.put(True)
        found = self._read.get(timeout=BEAT_S)
        self._is_reading = False
        return found

    def close(self) -> None:
        """Wait for a read that is under way: the client has hung up, or will."""
        self._wanted.put(False)
        self._thread.join()

    def _run(self) -> None:
        while self._wanted.get():
            try:
                credit = stream_pb2.Credit.FromString(self._reader.read_chunk().app_metadata.to_pybytes())
            except (StopIteration, pa.ArrowException, OSError):
                self._read.put(False)
                continue
            self._record.num_copied += credit.num_copied
            self._record.num_credits += credit.num_batches
            self._read.put(True)


class _Sender:
    """Writes messages; the schema of slices goes before the first of them."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._has_begun = False

    def say(self, message: stream_pb2.Message) -> None:
        self._writer.write_metadata(message.SerializeToString())

    def send(self, part: pa.RecordBatch, message: stream_pb2.Message) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._writer.begin(SLICE_SCHEMA)
        self._writer.write_with_metadata(part, message.SerializeToString())


# -- the dispatcher ----------------------------------------------------------------------------------------------------


class FakeDispatcher(control_pb2_grpc.ControlServiceServicer):
    """A dispatcher on loopback that assigns as it is told."""

    def __init__(self, *, protocol: int = 1, beat_s: float = BEAT_S, port: int = 0) -> None:
        self.protocol = protocol
        self.beat_s = beat_s
        self.opened: list[control_pb2.OpenJobRequest] = []
        self.beats: list[control_pb2.ClientBeatRequest] = []
        self.reports: list[control_pb2.ReportUnreachableRequest] = []
        self.closed: list[control_pb2.CloseJobRequest] = []
        self.on_report: Callable[[str], bool] = lambda _worker_id: False
        self.reason = "no worker is registered"
        self.is_undecided = False
        self.is_refusal = False
        self._known: set[str] = set()
        self._owners: list[control_pb2.Owner] = []
        self._version = 0
        self._changed = threading.Condition()
        self._start(port)

    @property
    def url(self) -> str:
        return f"stoker://127.0.0.1:{self.port}"

    def _start(self, port: int) -> None:
        self._server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        control_pb2_grpc.add_ControlServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self._server.start()

    def stop(self) -> None:
        """End, without a word."""
        self._server.stop(0).wait(WAIT_S)

    def restart(self) -> None:
        """Start again at the same port, knowing nobody."""
        with self._changed:
            self._known.clear()
            self._version += 100
        self._start(self.port)

    def assign(self, *workers: FakeWorker | tuple[str, str], num_lanes: int = 4) -> None:
        """Give the lanes to these workers by turns; to none if there are none."""
        pairs = [worker if isinstance(worker, tuple) else (worker.worker_id, worker.location) for worker in workers]
        with self._changed:
            self._version += 1
            self._owners = [
                control_pb2.Owner(
                    lane=lane, worker_id=pairs[lane % len(pairs)][0], location=pairs[lane % len(pairs)][1]
                )
                for lane in range(num_lanes if pairs else 0)
            ]
            self._changed.notify_all()

    def wait_for(self, predicate: Callable[[], bool]) -> None:
        """Wait until something holds, which is looked at after each call."""
        with self._changed:
            assert self._changed.wait_for(predicate, WAIT_S), "what the test waits for did not come"

    def assignment(self) -> control_pb2.Assignment:
        if self.is_undecided:
            return control_pb2.Assignment(reason="the dispatcher has just started")
        if not self._owners:
            return control_pb2.Assignment(version=f"v{self._version}", reason=self.reason, is_refusal=self.is_refusal)
        return control_pb2.Assignment(version=f"v{self._version}", owners=self._owners)

    # -- calls

    def Hello(self, request: Any, context: Any) -> control_pb2.HelloResponse:  # noqa: N802  # gRPC's names
        version = control_pb2.Version(protocol=self.protocol, oldest_protocol=self.protocol, release="9.9")
        return control_pb2.HelloResponse(version=version, beat_ms=int(self.beat_s * 1000), dispatcher_id="d")

    def OpenJob(self, request: Any, context: Any) -> control_pb2.OpenJobResponse:  # noqa: N802
        with self._noted(self.opened, request):
            self._known.add(request.client_id)
            return control_pb2.OpenJobResponse(assignment=self.assignment())

    def ClientBeat(self, request: Any, context: Any) -> control_pb2.ClientBeatResponse:  # noqa: N802
        with self._noted(self.beats, request):
            response = control_pb2.ClientBeatResponse(is_known=request.client_id in self._known)
            if response.is_known and request.assignment_version != f"v{self._version}":
                response.assignment.CopyFrom(self.assignment())
            return response

    def ReportUnreachable(self, request: Any, context: Any) -> control_pb2.ReportUnreachableResponse:  # noqa: N802
        is_dead = self.on_report(request.worker_id)
        with self._noted(self.reports, request):
            response = control_pb2.ReportUnreachableResponse(is_dead=is_dead)
            if request.client_id in self._known:
                response.assignment.CopyFrom(self.assignment())
            return response

    def CloseJob(self, request: Any, context: Any) -> control_pb2.CloseJobResponse:  # noqa: N802
        with self._noted(self.closed, request):
            return control_pb2.CloseJobResponse()

    @contextlib.contextmanager
    def _noted(self, calls: list[Any], request: Any) -> Iterator[None]:
        with self._changed:
            calls.append(request)
            yield
            self._changed.notify_all()


def until(predicate: Callable[[], bool]) -> None:
    """Wait until something holds that nobody tells of."""
    deadline_s = time.monotonic() + WAIT_S
    pause = threading.Event()
    while not predicate():
        assert time.monotonic() < deadline_s, "what the test waits for did not come"
        pause.wait(0.01)
