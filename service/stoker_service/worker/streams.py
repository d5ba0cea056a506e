"""One stream: batches from a producer to a client, as far as its credit reaches."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
from google.protobuf.message import DecodeError

from stoker.errors import SpecError
from stoker.memory.arena import Arena
from stoker_proto.v1 import stream_pb2
from stoker_service.transport.encode import slices
from stoker_service.transport.errors import to_wire
from stoker_service.transport.place import place
from stoker_service.worker import request
from stoker_service.worker.consumers import Key
from stoker_service.worker.producer import Made, Producer
from stoker_service.worker.producers import Producers
from stoker_service.worker.request import Asked
from stoker_service.worker.voice import LEAVING, Gone, Voice

MAX_IN_HAND: Final = 256
"""Batches in the arena that a client may have been sent and not have copied."""

_LOG: Final = logging.getLogger("stoker")


class Home(Protocol):
    """The worker, as a stream sees it."""

    @property
    def producers(self) -> Producers: ...

    @property
    def arena(self) -> Arena | None: ...

    @property
    def beat_s(self) -> float:
        """After so many seconds of silence a stream beats."""

    @property
    def is_draining(self) -> bool:
        """Whether no stream should begin here any more."""

    @property
    def is_leaving(self) -> bool:
        """Whether streams should end after the batch in hand."""

    def on_sent(self, num_bytes: int, seconds: float) -> None:
        """Bytes went through the socket, or a batch's places did; writing took so long."""


@dataclass(frozen=True, slots=True)
class _InHand:
    """A batch that lies in the arena until its client has copied it."""

    key: Key
    made: Made
    seal: int


class Stream:
    """Serves one DoExchange call in the thread that Flight gives to it, until the client hangs up.

    The thread reads only when it has no credit, and then it blocks: Flight aborts the process if a call ends while
    another thread reads from it. Credits that come while a batch is waited for or sent are read afterwards.
    """

    def __init__(self, home: Home, context: Any, reader: Any, writer: Any) -> None:
        self._home = home
        self._context = context
        self._reader = reader
        self._voice = Voice(writer)
        self._is_reading = False
        self._producer: Producer | None = None
        self._number = -1
        self._credit = 0
        self._in_hand: deque[_InHand] = deque()
        self.lane: int | None = None
        """The lane it sends, once that is known."""

    def serve(self, command: bytes) -> None:
        """Serve until the last batch, an error, or the client's end. Raises nothing."""
        self._voice.attend(self._reader, "a stream", lambda: self._serve(request.read(command)))

    def leave(self) -> None:
        """Ask the client to go elsewhere: after the batch in hand, or now if it is not waiting for any; any thread."""
        if self._producer is not None:
            self._producer.wake(self._number)
        if self._is_reading:
            with contextlib.suppress(Gone):
                self._voice.say(LEAVING)

    # -- the call's thread --------------------------------------------------------------------------------------------

    def _serve(self, asked: Asked) -> None:
        if self._home.is_draining:
            self._voice.say(LEAVING)
            return
        producers = self._home.producers
        pipeline = producers.pipeline(asked.pipeline)
        opened = producers.opened(pipeline, asked.dataset, self._home.beat_s, self._starting)
        request.check_extent(asked, opened.dataset.chunks.num_samples)
        producer = producers.acquire(asked.pipeline, pipeline, opened)
        try:
            producer.learn(asked.killers)
            self._number = producer.attach(asked.plan, asked.batches, asked.lane, asked.careful)
            self._producer, self.lane = producer, asked.lane
            try:
                self._send_all(asked, producer)
            finally:
                while self._in_hand:
                    self._let_go()
                producer.detach(self._number)
        finally:
            producers.release(producer)

    def _send_all(self, asked: Asked, producer: Producer) -> None:
        num_left = len(asked.batches)
        while num_left:
            if self._home.is_leaving:
                self._voice.say(LEAVING)
                return
            if not self._credit or len(self._in_hand) >= MAX_IN_HAND:
                self._read_credit(producer)
                continue
            begun_s = time.monotonic()
            key, made = self._next(producer)
            if key is None or made is None:
                continue
            num_left -= 1
            self._credit -= 1
            if made.failure is not None:
                producer.let_go(key)
                raise made.failure
            self._send(asked, producer, key, made, begun_s)
        while self._in_hand:  # until all is copied, or the client hangs up
            self._read_credit(producer, is_last=True)

    def _next(self, producer: Producer) -> tuple[Key, Made] | tuple[None, None]:
        """Wait for the next batch, beating; None if the stream should leave."""
        while not self._home.is_leaving:
            found = producer.take(self._number, self._home.beat_s)
            if found is not None:
                return found
            if self._context.is_cancelled():
                raise Gone
            if not self._home.is_leaving:
                stage, text = producer.waits_for(self._number)
                self._voice.say(stream_pb2.Message(beat=stream_pb2.Beat(waits_for=stage, text=text)))
        return None, None

    def _starting(self, text: str) -> bool:
        """Beat while the data set is opened; False if nobody waits any more."""
        if self._context.is_cancelled():
            raise Gone
        self._voice.say(stream_pb2.Message(beat=stream_pb2.Beat(waits_for="start", text=text)))
        return True

    def _read_credit(self, producer: Producer, *, is_last: bool = False) -> None:
        """Wait for a message of the client, or return since the stream should leave. Raises Gone when it hangs up."""
        self._is_reading = True  # before looking whether to leave, as leave() looks at it after that was decided
        try:
            if self._home.is_leaving and not is_last:
                return
            chunk = self._reader.read_chunk()
        except (StopIteration, pa.ArrowException, OSError):
            raise Gone from None
        finally:
            self._is_reading = False
        if chunk.app_metadata is None:
            raise SpecError("expected a Credit as a message's metadata, found none")
        try:
            credit = stream_pb2.Credit.FromString(chunk.app_metadata.to_pybytes())
        except DecodeError:
            raise SpecError("expected a Credit as a message's metadata, found other bytes") from None
        if credit.num_copied > len(self._in_hand):
            raise SpecError(f"num_copied: expected at most {len(self._in_hand)}, found {credit.num_copied}")
        for _ in range(credit.num_copied):
            self._let_go()
        self._credit += credit.num_batches
        producer.ask(self._number, credit.num_batches)

    # -- sending ------------------------------------------------------------------------------------------------------

    def _send(self, asked: Asked, producer: Producer, key: Key, made: Made, begun_s: float) -> None:
        assert made.encoded is not None, "what failed is not sent"
        sending_s = time.monotonic()
        begin = _begin_of(made, begun_s, sending_s)
        in_hand = self._placed(asked, begin, key, made)
        num_sent = 0
        try:
            if in_hand is not None:
                self._in_hand.append(in_hand)
                self._voice.say(stream_pb2.Message(batch=begin))
            else:
                for number, part in enumerate(slices(made.encoded, asked.slice_bytes)):
                    kind = {"slice": stream_pb2.Slice()} if number else {"batch": begin}
                    self._voice.say(stream_pb2.Message(**kind), part)
                num_sent = made.encoded.num_bytes
        finally:
            if in_hand is None:
                producer.let_go(key)
        self._home.on_sent(num_sent, time.monotonic() - sending_s)

    def _placed(self, asked: Asked, begin: stream_pb2.BatchBegin, key: Key, made: Made) -> _InHand | None:
        """Put a batch's places into its beginning; None if its bytes have to be sent."""
        arena = self._home.arena
        if arena is None or not asked.takes_arena or made.encoded is None:
            return None
        pieces = place(made.encoded, arena)
        seal = arena.seals.make() if pieces is not None else None
        if pieces is None or seal is None:
            return None
        begin.pieces.extend(pieces)
        begin.seal = seal
        return _InHand(key, made, seal)

    def _let_go(self) -> None:
        """The batch that has been in hand longest is copied, or will not be."""
        done = self._in_hand.popleft()
        arena, producer = self._home.arena, self._producer
        assert arena is not None, "only what lies in an arena stays in hand"
        assert producer is not None, "a stream that has sent has a producer"
        arena.seals.break_seal(done.seal)
        producer.let_go(done.key)


def _begin_of(made: Made, begun_s: float, sending_s: float) -> stream_pb2.BatchBegin:
    assert made.encoded is not None, "what failed is not sent"
    waited_s = sending_s - begun_s
    storage_s = min(max(made.ready_s - begun_s, 0.0), waited_s)
    return stream_pb2.BatchBegin(
        batch_index=made.batch_index,
        num_bytes=made.encoded.num_bytes,
        bad=[to_wire(error) for error in made.bad],
        num_filtered=made.num_filtered,
        killers=[stream_pb2.Killer(sample=killer.sample, reason=killer.reason) for killer in made.killers],
        conversions=made.conversions,
        wait_storage_s=storage_s,
        wait_decode_s=waited_s - storage_s,
    )
