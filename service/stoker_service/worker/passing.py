"""The thread of a stream that talks with a client's process, and tells the client what it says."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from stoker.compat import wire
from stoker.compat.wire import Kind
from stoker.errors import StokerError
from stoker.processes.channel import Channel, ChannelClosedError, Message, wait
from stoker.processes.launch import WorkerProcess
from stoker.processes.lent import LentMemory
from stoker.processes.objects import inlined
from stoker_proto.v1 import stream_pb2
from stoker_service.transport.encode import Encoded, slices
from stoker_service.transport.errors import to_wire
from stoker_service.worker.processes import Processes, Seat
from stoker_service.worker.voice import LEAVING, Gone, Voice

MAX_IN_HAND: Final = 2
"""Tasks that a process has at a time: one that it works on, and one that follows without a gap. Others wait here."""

SLICE_BYTES: Final = 2 << 20

ENDING_S: Final = 2.0
"""How long the system may take to say how a process ended that has hung up."""

STACK_AFTER_S: Final = 2.0
"""A process that has had a batch in hand for so long is asked where its code is, and again after as long."""

SILENT_S: Final = 60.0
"""A client that says nothing for so long is gone, whatever its connection looks like: it beats each second or so."""

_LOG: Final = logging.getLogger("stoker")


class Home(Protocol):
    """The worker, as this thread sees it."""

    @property
    def processes(self) -> Processes: ...

    @property
    def beat_s(self) -> float: ...

    @property
    def is_draining(self) -> bool: ...

    @property
    def is_leaving(self) -> bool: ...

    def on_sent(self, num_bytes: int, seconds: float) -> None:
        """Bytes went through the socket; writing took so long."""


@dataclass(frozen=True, slots=True)
class Begun:
    """An iteration begins: what the process is told, and a descriptor, to be closed, of its payload if it gets one."""

    run: int
    words: bytes
    payload_fd: int | None


class Passing:
    """Orders to the process, answers to the client, in a thread of its own from :meth:`start` to :meth:`end`.

    The process has :data:`MAX_IN_HAND` tasks at most, and is given more before an answer is sent, so it works while the
    client's network is slow, but not far ahead of it: of one process two or three batches are under way. The methods
    are for any thread.
    """

    def __init__(self, home: Home, seat: Seat, voice: Voice) -> None:
        self._home = home
        self._seat = seat
        self._voice = voice
        self._orders: deque[WorkerProcess | Begun | stream_pb2.Fetch] = deque()
        self._is_ending = False
        self._waking = threading.Lock()  # a channel is for one thread at a time
        self._woken, there = Channel.pair()
        self._waker = Channel(there)
        self._process: WorkerProcess | None = None
        self._memory: LentMemory | None = None
        self._run = 0
        self._waiting: deque[stream_pb2.Fetch] = deque()
        self._in_hand: dict[tuple[int, int], int] = {}  # how many rows, by run and batch
        self._since_s = time.monotonic()  # when the oldest of them came to be the one that is worked on
        self._stack = ""
        self._stack_s = 0.0
        self._beat_s = 0.0  # when it is due
        self._heard_s = time.monotonic()
        self._thread = threading.Thread(target=self._pass_on, name="stoker-dataset", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def talk_with(self, process: WorkerProcess) -> None:
        """The process has started; it is this thread's until :meth:`end`."""
        self._give(process)

    def begin(self, begun: Begun) -> None:
        """An iteration begins; tasks of the one before are given up."""
        self._give(begun)

    def fetch(self, fetch: stream_pb2.Fetch) -> None:
        """A task, behind those that came before."""
        self._give(fetch)

    def wake(self) -> None:
        """Look again whether to leave."""
        with self._waking, contextlib.suppress(ChannelClosedError):
            self._waker.send([b"\0"])

    def heard(self) -> None:
        """The client lives."""
        self._heard_s = time.monotonic()

    def end(self) -> None:
        """End the thread, and wait for that."""
        self._is_ending = True
        self.wake()
        self._thread.join()
        for order in self._orders:
            if isinstance(order, Begun) and order.payload_fd is not None:
                os.close(order.payload_fd)
        with self._waking:
            self._waker.close()
        self._woken.close()

    def _give(self, order: WorkerProcess | Begun | stream_pb2.Fetch) -> None:
        self._orders.append(order)
        self.wake()

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _pass_on(self) -> None:
        try:
            self._pass_all()
        except Gone:
            pass
        except Exception as error:  # noqa: BLE001  # the thread's outermost loop: the client must hear of it
            if not isinstance(error, StokerError):
                _LOG.error("a stream of a dataset failed", exc_info=error)
            with contextlib.suppress(Gone):
                self._voice.say(stream_pb2.Message(error=to_wire(error)))

    def _pass_all(self) -> None:
        while not self._is_ending:
            if self._home.is_leaving or (self._home.is_draining and not self._in_hand):
                self._leave()
                return
            if time.monotonic() - self._heard_s > SILENT_S:
                _LOG.warning("a client of a dataset has said nothing for %g s: its process is ended", SILENT_S)
                self._leave()
                self._home.processes.free(self._seat)  # the call may take hours to notice
                return
            try:
                self._step()
            except ChannelClosedError:
                self._tell_death()
                return

    def _step(self) -> None:
        while self._orders:
            self._take(self._orders.popleft())
        self._feed()
        left_s = self._beat_s - time.monotonic()
        if left_s <= 0:
            self._beat()
            return
        channels = [self._woken] if self._process is None else [self._woken, self._process.channel]
        for channel in wait(channels, left_s):
            message = channel.receive(0)
            if message is not None and channel is not self._woken:
                self._hear(message)

    def _take(self, order: WorkerProcess | Begun | stream_pb2.Fetch) -> None:
        if isinstance(order, WorkerProcess):
            self._process = order
        elif isinstance(order, Begun):
            assert self._process is not None, "orders are read once the process is there"
            self._run = order.run
            self._waiting.clear()
            self._in_hand.clear()  # it drops them unseen
            fds = [order.payload_fd] if order.payload_fd is not None else []
            try:
                self._process.channel.send([order.words], fds)
            finally:
                for fd in fds:
                    os.close(fd)
        elif order.run == self._run:
            self._waiting.append(order)

    def _feed(self) -> None:
        """Give the process its next tasks, unless the worker drains."""
        while self._waiting and len(self._in_hand) < MAX_IN_HAND and not self._home.is_draining:
            assert self._process is not None, "tasks come once the process is there"
            fetch = self._waiting.popleft()
            if not self._in_hand:
                self._since_s = time.monotonic()
            self._in_hand[fetch.run, fetch.batch_index] = fetch.num_rows
            self._process.channel.send([fetch.words])

    def _hear(self, message: Message) -> None:
        """Take what the process says. Answers of earlier iterations are dropped."""
        if wire.kind_of(message.body) is Kind.HELLO:
            self._memory = LentMemory.of(message.fds[0]) if message.fds else None
            return
        answer = wire.answer_of(message.body)
        num_rows = self._in_hand.pop((answer.run, answer.batch_index), None)
        self._since_s = time.monotonic()
        self._feed()
        value: wire.Parts = [answer.value]
        if answer.kind is Kind.MADE:
            value = inlined(answer.value, self._memory)
        if num_rows is not None:
            if answer.kind is Kind.MADE:
                self._home.processes.on_made(self._seat, num_rows)
            self._send(answer, value)
        value.clear()
        self._release()

    def _send(self, answer: wire.Answer, value: wire.Parts) -> None:
        parts = wire.answer_message(
            answer.kind, answer.run, answer.batch_index, value, asked=answer.asked, state=bytes(answer.state)
        )
        buffers = tuple(pa.py_buffer(part) for part in parts if len(part))
        encoded = Encoded(buffers, sum(buffer.size for buffer in buffers))
        begin = stream_pb2.BatchBegin(batch_index=answer.batch_index, num_bytes=encoded.num_bytes)
        begun_s = time.monotonic()
        for number, part in enumerate(slices(encoded, SLICE_BYTES)):
            kind = {"slice": stream_pb2.Slice()} if number else {"batch": begin}
            self._voice.say(stream_pb2.Message(**kind), part)
        now_s = time.monotonic()
        self._beat_s = now_s + self._home.beat_s
        self._home.on_sent(encoded.num_bytes, now_s - begun_s)

    def _release(self) -> None:
        """Tell the process which of its memory has been sent; the rest is told later."""
        returned = self._memory.take_returned() if self._memory is not None else []
        if returned and self._process is not None:
            self._process.channel.send(wire.release_message(returned))

    # -- beats, and the end -------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        process = self._process
        if process is None:
            beat = stream_pb2.Beat(waits_for="start", text="the process is started")
        else:
            self._release()
            beat = stream_pb2.Beat(waits_for="dataset", text=self._doing(process), cpu_s=process.cpu_s() or 0.0)
        self._voice.say(stream_pb2.Message(beat=beat))
        self._beat_s = time.monotonic() + self._home.beat_s

    def _doing(self, process: WorkerProcess) -> str:
        if not self._in_hand:
            return f"process {process.pid} has nothing to do"
        now_s = time.monotonic()
        busy_s = now_s - self._since_s
        if busy_s < STACK_AFTER_S:
            return f"process {process.pid} has a batch in hand since {busy_s:.1f} s"
        if now_s - self._stack_s > STACK_AFTER_S:
            self._stack = process.stack() or (
                "it is stopped" if process.is_stopped() else "it does not say where it is"
            )
            self._stack_s = time.monotonic()
        return f"process {process.pid} has a batch in hand since {busy_s:.1f} s:\n{self._stack}"

    def _leave(self) -> None:
        """Send the client elsewhere, and the process home: what it has in hand is not waited for."""
        if self._process is not None:
            self._process.kill()
        self._voice.say(LEAVING)

    def _tell_death(self) -> None:
        """The process is gone, and the stream ends with it; or it was the other way round."""
        if self._home.is_leaving or self._is_ending or self._process is None:
            self._voice.say(LEAVING)
            return
        how = self._process.ending(ENDING_S) or "hung up without ending"
        _LOG.warning("process %d of a dataset %s", self._process.pid, how)
        self._voice.say(stream_pb2.Message(died=stream_pb2.Died(pid=self._process.pid, text=how)))
