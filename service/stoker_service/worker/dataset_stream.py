"""One stream: what a client's process is told and says, passed on both ways."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, Protocol

import pyarrow as pa
from google.protobuf.message import DecodeError

from stoker.errors import SpecError
from stoker.processes.launch import launch
from stoker.processes.payload import Payload
from stoker_proto.v1 import stream_pb2
from stoker_service import versions
from stoker_service.transport import code
from stoker_service.transport.cargo import new_hash
from stoker_service.worker.passing import Begun, Passing
from stoker_service.worker.processes import Processes, Seat
from stoker_service.worker.voice import LEAVING, Gone, Voice

PROGRAM: Final = "stoker.compat.worker:main"
"""What a process runs: the same as in local mode."""

MAX_REQUEST_BYTES: Final = 64 << 10
"""Of the request that opens such a stream; a longer one is a lane's, with a pipeline."""

CLOSE_S: Final = 0.5
"""How long a process has for leaving by itself once its client is gone."""

_LOG: Final = logging.getLogger("stoker")


class Home(Protocol):
    """The worker, as a dataset's stream sees it."""

    @property
    def processes(self) -> Processes: ...

    @property
    def allows_code(self) -> bool: ...

    @property
    def beat_s(self) -> float:
        """A stream beats after so many seconds."""

    @property
    def is_draining(self) -> bool:
        """Whether streams should end once what is in hand is sent."""

    @property
    def is_leaving(self) -> bool:
        """Whether streams should end now."""

    def on_sent(self, num_bytes: int, seconds: float) -> None:
        """Bytes went through the socket; writing took so long."""


def asks_for_process(command: bytes) -> bool:
    """Whether a stream is asked for that :class:`DatasetStream` serves."""
    if len(command) > MAX_REQUEST_BYTES:
        return False
    try:
        return stream_pb2.StreamRequest.FromString(command).HasField("process")
    except DecodeError:
        return False


class DatasetStream:
    """Serves one DoExchange call with a process, from the client's first order until it hangs up.

    Two threads. The call's own reads orders, as it alone may (see :mod:`stoker_service.worker.streams`), starts the
    process and, when the client hangs up, ends it. That of :class:`Passing` talks with the process and writes.
    """

    def __init__(self, home: Home, context: Any, reader: Any, writer: Any) -> None:
        self._home = home
        self._context = context
        self._reader = reader
        self._voice = Voice(writer)
        self._passing: Passing | None = None
        self._held: str | None = None  # the payload of this process, by its hash
        self._later: deque[stream_pb2.Order] = deque()  # orders that came while a payload was on its way

    def serve(self, command: bytes) -> None:
        """Serve until the client's end. Raises nothing."""
        self._voice.attend(
            self._reader, "a stream of a dataset", lambda: self._serve(stream_pb2.StreamRequest.FromString(command))
        )

    def leave(self) -> None:
        """Look again whether to drain or leave; any thread."""
        if self._passing is not None:
            self._passing.wake()

    # -- the call's thread --------------------------------------------------------------------------------------------

    def _serve(self, request: stream_pb2.StreamRequest) -> None:
        versions.check(request.version, "the client")
        code.check_dataset(request.process.python, allow_code=self._home.allows_code)
        if self._home.is_draining:
            self._voice.say(LEAVING)
            return
        processes = self._home.processes
        seat = processes.reserve(request.process.job, request.process.lane)
        if seat is None:
            self._voice.say(stream_pb2.Message(full=stream_pb2.Full(num_processes=processes.max_processes)))
            return
        try:
            self._run(seat)
        finally:
            if self._held is not None:
                processes.payloads.drop(self._held)
            processes.free(seat)

    def _run(self, seat: Seat) -> None:
        passing = self._passing = Passing(self._home, seat, self._voice)
        passing.start()
        process = None
        try:
            process = launch(PROGRAM, f"dataset-{seat.lane}")  # it beats meanwhile
            passing.talk_with(process)
            while True:
                self._take_order(passing)
        finally:
            passing.end()
            if process is not None:
                process.close(time.monotonic() + CLOSE_S)

    def _take_order(self, passing: Passing) -> None:
        order = self._later.popleft() if self._later else self._read()[0]
        match order.WhichOneof("kind"):
            case "begin":
                payload = self._payload(order.begin) if order.begin.payload else None
                passing.begin(Begun(order.begin.run, order.begin.words, os.dup(payload.fd) if payload else None))
            case "fetch":
                passing.fetch(order.fetch)
            case "heartbeat":
                pass  # heard already
            case kind:
                raise SpecError(f"expected an order for a dataset's process, found {kind or 'an unknown one'}")

    def _payload(self, begin: stream_pb2.Begin) -> Payload:
        """The payload of an iteration, from those that are here or from the client."""
        payloads = self._home.processes.payloads
        payload = payloads.hold(
            begin.payload,
            lambda: self._received(begin),
            self._home.beat_s,
            self._waits,
        )
        before, self._held = self._held, begin.payload
        if before is not None:
            payloads.drop(before)
        return payload

    def _waits(self) -> bool:
        """Whether the client waits for a payload that another one sends."""
        if self._passing is not None:
            self._passing.heard()  # it is not listened to meanwhile
        return not (self._context.is_cancelled() or self._home.is_leaving)

    def _received(self, begin: stream_pb2.Begin) -> Payload:
        self._voice.say(stream_pb2.Message(wanted=stream_pb2.Wanted(payload=begin.payload)))
        digest = new_hash()
        payload = Payload.of(self._parts(begin.payload_bytes, digest), begin.payload_bytes)
        if digest.hexdigest() != begin.payload:
            payload.close()
            raise SpecError(f"the payload's hash: expected {begin.payload}, found {digest.hexdigest()}")
        return payload

    def _parts(self, num_bytes: int, digest: hashlib.blake2b) -> Iterator[memoryview]:
        """The bytes of a payload as they come."""
        num_missing = num_bytes
        while num_missing > 0:
            order, part = self._read()
            if order.WhichOneof("kind") != "slice" or part is None:
                self._later.append(order)
                continue
            column = part.column(0)
            found = memoryview(column.buffers()[1])[column.offset : column.offset + len(column)]
            num_missing -= len(found)
            digest.update(found)
            yield found

    def _read(self) -> tuple[stream_pb2.Order, pa.RecordBatch | None]:
        """The next order. Raises Gone when the client hangs up."""
        try:
            chunk = self._reader.read_chunk()
        except (StopIteration, pa.ArrowException, OSError):
            raise Gone from None
        if self._passing is not None:
            self._passing.heard()
        try:
            return stream_pb2.Order.FromString(chunk.app_metadata.to_pybytes()), chunk.data
        except (DecodeError, AttributeError):
            raise SpecError("expected an Order as a message's metadata, found none or other bytes") from None
