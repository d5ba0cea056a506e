"""One stretch of a lane: opened on its owner, received, and opened again until all its batches are here."""

from __future__ import annotations

import contextlib
import queue
import random
import threading
import time
from dataclasses import dataclass, replace
from typing import Final, Protocol

import pyarrow as pa
from pyarrow import flight

from stoker.batch.pool import BufferPool
from stoker.errors import AccessError, ClosedError, ServiceError, StokerError
from stoker_proto.v1 import stream_pb2 as wire
from stoker_service.client.arenas import Peer, Peers
from stoker_service.client.merge import Place, Stretch
from stoker_service.client.owners import Owner
from stoker_service.client.pauses import pause_s
from stoker_service.limits import MAX_AHEAD
from stoker_service.transport.decode import Assembly
from stoker_service.transport.errors import from_wire
from stoker_service.transport.flight import translate

MAX_FAULTS: Final = 8
"""Times in a row that workers may fail in ways that are no broken connection, before the trainer hears of it."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A batch that is here, or what its making failed with; with what the worker told of it."""

    batch: pa.RecordBatch | None = None
    failure: BaseException | None = None
    begin: wire.BatchBegin | None = None
    receive_s: float = 0.0
    copy_s: float = 0.0


class Host(Protocol):
    """What a lane's stream belongs to. ``lock`` guards the fields of all streams; no method is called under it."""

    lock: threading.Lock

    @property
    def peers(self) -> Peers: ...

    @property
    def pool(self) -> BufferPool: ...

    def owner(self, lane: int) -> Owner | None:
        """Who owns a lane now."""

    def request(self, stretch: Stretch, *, takes_arena: bool) -> wire.StreamRequest:
        """What to ask a worker for."""

    def on_open(self) -> None:
        """Credits may be sent."""

    def on_begin(self, place: Place, num_bytes: int) -> None:
        """A batch's size is known."""

    def on_arrival(self, place: Place, arrival: Arrival) -> None:
        """A batch is here."""

    def on_failure(self, stream: LaneStream, error: BaseException) -> None:
        """No batch will come here any more."""

    def on_gone(self, owner: Owner, reason: str) -> None:
        """A worker does not answer, or leaves if ``reason`` is empty."""

    def on_end(self, stream: LaneStream) -> None:
        """The thread ends."""


class Broken(Exception):  # noqa: N818  # no error: the stream is opened again
    """The stream has ended before its last batch; ``is_leaving``: the worker asks to go elsewhere."""

    def __init__(self, reason: str, *, is_leaving: bool = False, is_fault: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_leaving = is_leaving
        self.is_fault = is_fault


class OpenCall:
    """A DoExchange call that is under way."""

    def __init__(self, peer: Peer, request: wire.StreamRequest) -> None:
        descriptor = flight.FlightDescriptor.for_command(request.SerializeToString())
        self.peer = peer
        self._writer, self._reader = peer.client.do_exchange(descriptor)
        self.silent_s = 0.0  # counted by who watches, while the reader listens for what is asked for
        self.is_reading = False
        self.why_cancelled = ""
        self._writing = threading.Lock()  # a write that blocks ends with cancel()

    def read(self) -> tuple[wire.Message, pa.RecordBatch | None]:
        """The next message. Blocks; raises StopIteration at the end, what Flight raises, Broken if it is none."""
        self.silent_s, self.is_reading = 0.0, True
        chunk = self._reader.read_chunk()
        self.silent_s, self.is_reading = 0.0, False
        if chunk.app_metadata is None:
            raise Broken("it sent bytes without a message", is_fault=True)
        return wire.Message.FromString(chunk.app_metadata.to_pybytes()), chunk.data

    def credit(self, num_batches: int, num_copied: int) -> None:
        """Send a credit. A call that broke is left to its reader."""
        credit = wire.Credit(num_batches=num_batches, num_copied=num_copied)
        with self._writing, contextlib.suppress(pa.ArrowException, OSError):
            self._writer.write_metadata(credit.SerializeToString())

    def cancel(self, why: str) -> None:
        """End the call, whatever its reader is doing; any thread, and again harmlessly."""
        self.why_cancelled = self.why_cancelled or why
        with contextlib.suppress(pa.ArrowException, OSError):
            self._reader.cancel()

    def close(self) -> None:
        """Cancel the call and let go of it; for its reader, at the end."""
        self.cancel("done")
        with self._writing, contextlib.suppress(pa.ArrowException, OSError):
            self._writer.close()  # else its end writes to the trainer's standard error that it was cancelled


class LaneStream:
    """Receives a stretch in a thread of its own. The fields without underscore are guarded by the host's lock.

    ``start`` is the first batch that is not here, ``num_allowed`` how many from there on may be asked for, of which
    ``num_asked`` are asked for on the open call. ``suspects`` has, for each process of a worker whose call broke off
    without a word, the index up to which batches may have been in its hands: one of them may have killed it.
    """

    def __init__(self, host: Host, stretch: Stretch) -> None:
        self.stretch = stretch
        self.start = stretch.start
        self.stop = stretch.stop
        self.num_allowed = 0
        self.num_asked = 0
        self.num_copied = 0
        self.call: OpenCall | None = None
        self.suspects: dict[str, int] = {}
        self.failure: BaseException | None = None
        self.is_closed = False
        self.doing = "waits for an owner"
        self.doing_since_s = time.monotonic()
        self.last_word = ""
        self.last_trouble = ""
        self._host = host
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._chance = random.Random()  # jitter is to differ between lanes
        self._attempt = 0
        self._num_faults = 0
        self._last_peer: Peer | None = None
        self._num_in_hand = 0  # batches that the last peer was asked for, or made ahead, when the call ended
        self._thread = threading.Thread(target=self._run, name=f"stoker-lane-{stretch.lane}", daemon=True)

    # -- called by the host -------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the thread; once only."""
        self._thread.start()

    def wake(self) -> None:
        """Look again who the owner is, or whether to end."""
        self._wake.put(None)

    def join(self, deadline_s: float) -> None:
        """Wait for the thread, which was told to end."""
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, deadline_s - time.monotonic()))

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def is_over(self) -> bool:
        """Whether nothing is left to be received."""
        return self.start >= self.stop or self.is_closed or self.failure is not None

    def holds(self, batch_index: int) -> bool:
        """Whether a batch is among those still to come here; of the same lane and world."""
        return self.start <= batch_index < self.stop

    def to_send(self) -> tuple[OpenCall, int, int] | None:
        """The call, and the credits that are due on it, which count as sent with this."""
        num_batches, num_copied = self.num_allowed - self.num_asked, self.num_copied
        if self.call is None or not (num_batches or num_copied):
            return None
        if not self.num_asked:
            self.call.silent_s = 0.0  # a worker that is owed no word says none
        self.num_asked, self.num_copied = self.num_allowed, 0
        return self.call, num_batches, num_copied

    def cut(self) -> tuple[Stretch, int] | None:
        """Give up what is not asked for: a stretch to receive elsewhere, and how many of it may be asked for at once.

        What was asked for still comes here.
        """
        first = self.start + self.num_asked * self.stretch.stride
        if first >= self.stop:
            return None
        rest = replace(self.stretch, start=first, stop=self.stop)
        num_allowed = self.num_allowed - self.num_asked
        self.stop, self.num_allowed = first, self.num_asked
        return rest, num_allowed

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._receive_all()
        except ClosedError:
            pass
        except BaseException as error:  # noqa: BLE001  # the thread's outermost loop: the trainer must hear of it
            self._fail(error)
        finally:
            self._host.on_end(self)

    def _receive_all(self) -> None:
        while not self.is_over():
            owner = self._host.owner(self.stretch.lane)
            if owner is None:
                self._do("waits for an owner")
                self._wake.get()
                continue
            before = self.start
            try:
                self._receive_from(owner)
            except Broken as broken:
                if not broken.is_leaving:
                    self._suspect()
                if self.start != before:
                    self._attempt = self._num_faults = 0
                self._after(broken, owner)

    def _receive_from(self, owner: Owner) -> None:
        """Receive over one call. Raises Broken where it ends early, and what the worker says cannot be made."""
        self._do(f"is on its way to {owner}: connecting")
        self._num_in_hand = 0
        try:
            peer = self._host.peers.of(owner)
        except ServiceError as error:
            raise Broken(str(error)) from error
        call = None
        try:
            call = self._open(peer)
            if call is not None:
                self._read(call)
        except StopIteration:
            if not self.is_over():
                raise Broken(f"{owner} ended the stream") from None
        except StokerError:
            raise
        except (pa.ArrowException, OSError) as error:
            self._host.peers.drop(peer)
            raise self._broken(error, owner, call) from error
        finally:
            if call is not None:
                self._let_go(call)

    def _open(self, peer: Peer) -> OpenCall | None:
        """The call for what is left; None if the lane has another owner by now."""
        with self._host.lock:
            left = replace(self.stretch, start=self.start, stop=self.stop)
        request = self._host.request(left, takes_arena=peer.arena is not None)
        request.num_careful = self._num_careful(peer)
        call = OpenCall(peer, request)
        with self._host.lock:
            is_wanted = not self.is_over() and self.stop == left.stop
            if is_wanted:
                self.call, self.num_asked, self.num_copied, self.last_word = call, 0, 0, ""
        if not is_wanted or self._host.owner(self.stretch.lane) not in (peer.owner, None):
            self._let_go(call)
            return None
        self._do(f"is asked of {peer.owner}")
        self._host.on_open()
        return call

    def _let_go(self, call: OpenCall) -> None:
        with self._host.lock:
            if self.call is call:
                self._last_peer, self._num_in_hand = call.peer, self.num_asked + MAX_AHEAD
                self.call, self.num_asked = None, 0
        call.close()

    def _suspect(self) -> None:
        """The last call broke off: whatever its worker had in hand may be what ended it."""
        self.suspects = {life: end for life, end in self.suspects.items() if end > self.start}
        if self._last_peer is not None and self._num_in_hand:
            self.suspects[self._last_peer.life] = self.start + self._num_in_hand * self.stretch.stride

    def _num_careful(self, peer: Peer) -> int:
        """Batches that a worker is to make with care. One that says hello again has survived what it had in hand."""
        if peer.life and peer is not self._last_peer:
            self.suspects.pop(peer.life, None)
        end = max(self.suspects.values(), default=self.start)
        return len(range(self.start, end, self.stretch.stride))

    def _read(self, call: OpenCall) -> None:
        while not self.is_over():
            message, part = call.read()
            match message.WhichOneof("kind"):
                case "beat":
                    self.last_word = f"waits for {message.beat.waits_for or 'something'} {message.beat.text}".rstrip()
                case "batch":
                    self._receive_batch(call, message.batch, part)
                case "error":
                    raise from_wire(message.error)
                case "leaving":
                    raise Broken("it leaves", is_leaving=True)
                case kind:
                    raise Broken(f"it sent a message that does not belong here ({kind or 'unknown'})", is_fault=True)

    def _receive_batch(self, call: OpenCall, begin: wire.BatchBegin, part: pa.RecordBatch | None) -> None:
        place = Place(self.stretch.epoch, begin.batch_index)
        if begin.batch_index != self.start or not self.num_asked:
            raise Broken(f"it sent batch {begin.batch_index} where {self.start} was due", is_fault=True)
        self._host.on_begin(place, begin.num_bytes)
        try:
            if begin.pieces:
                batch, receive_s, copy_s = self._copy(call, begin)
            else:
                batch, receive_s, copy_s = self._collect(call, begin, part)
        except StokerError as error:
            raise Broken(str(error), is_fault=True) from error
        with self._host.lock:
            self.start += self.stretch.stride
            self.num_allowed -= 1
            self.num_asked -= 1
            self.num_copied += bool(begin.pieces)
        self._host.on_arrival(place, Arrival(batch, None, begin, receive_s, copy_s))
        self._do(f"is asked of {call.peer.owner}")

    def _collect(
        self, call: OpenCall, begin: wire.BatchBegin, part: pa.RecordBatch | None
    ) -> tuple[pa.RecordBatch, float, float]:
        """A batch whose bytes come one slice after another."""
        assembly = Assembly(begin.num_bytes, self._host.pool)
        receive_s = copy_s = 0.0
        while True:
            begun_s = time.perf_counter()
            if part is not None:
                assembly.add(part)
            copied_s = time.perf_counter()
            copy_s += copied_s - begun_s
            if not assembly.num_missing:
                batch = assembly.finish()
                return batch, receive_s, copy_s
            message, part = call.read()
            receive_s += time.perf_counter() - copied_s
            match message.WhichOneof("kind"):
                case "slice":
                    pass
                case "beat":
                    part = None
                case kind:
                    raise Broken(f"{kind or 'an unknown message'} came in the middle of a batch", is_fault=True)

    def _copy(self, call: OpenCall, begin: wire.BatchBegin) -> tuple[pa.RecordBatch, float, float]:
        """A batch that lies in the arena of a worker of this host."""
        arena = call.peer.arena
        if arena is None:
            raise Broken("it put a batch into memory that is not shared", is_fault=True)
        begun_s = time.perf_counter()
        assembly = Assembly(begin.num_bytes, self._host.pool)
        try:
            for piece in begin.pieces:
                assembly.add_bytes(piece.inline or arena.view(piece.offset, piece.num_bytes))
        except OSError as error:
            if not self.is_closed:
                self._host.peers.refuse_arena(call.peer, str(error))
            raise Broken(str(error)) from error
        if not arena.holds(begin.seal):
            raise Broken("the batch that lay in its memory is no longer there")
        batch = assembly.finish()
        return batch, 0.0, time.perf_counter() - begun_s

    # -- when it breaks -----------------------------------------------------------------------------------------------

    def _broken(self, error: BaseException, owner: Owner, call: OpenCall | None) -> Broken:
        if call is not None and call.why_cancelled:
            return Broken(call.why_cancelled)
        found = translate(error, owner.location)
        if isinstance(found, AccessError):
            raise found from error
        return Broken(str(found), is_fault=not isinstance(found, ServiceError))

    def _after(self, broken: Broken, owner: Owner) -> None:
        """Wait until it makes sense to try again: another owner, or some time."""
        if self.is_over():
            return
        named = owner.location in broken.reason
        self.last_trouble = broken.reason if named else f"{owner}: {broken.reason}"
        self._num_faults += broken.is_fault
        if self._num_faults >= MAX_FAULTS:
            raise StokerError(f"{owner} failed {MAX_FAULTS} times, the last time so: {broken.reason}")
        self._host.on_gone(owner, "" if broken.is_leaving else broken.reason)
        self._do(f"is on its way to {owner}, which {'leaves' if broken.is_leaving else 'does not answer'}")
        again_s = time.monotonic() + pause_s(self._attempt, self._chance)
        self._attempt += 1
        while not self.is_over() and self._host.owner(self.stretch.lane) == owner:
            left = again_s - time.monotonic()
            if left <= 0:
                return
            with contextlib.suppress(queue.Empty):
                self._wake.get(timeout=left)

    def _fail(self, error: BaseException) -> None:
        with self._host.lock:
            self.failure = error
        self._host.on_failure(self, error)

    def _do(self, what: str) -> None:
        self.doing, self.doing_since_s = what, time.monotonic()
