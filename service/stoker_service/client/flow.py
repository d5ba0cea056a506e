"""What is under way from one position on: the streams of all lanes, merged into what the trainer takes."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from stoker.batch.pool import BufferPool
from stoker.engine.killers import Killer, Killers
from stoker.errors import ClosedError
from stoker_proto.v1 import stream_pb2 as wire
from stoker_service.client.arenas import Peers
from stoker_service.client.control import Control
from stoker_service.client.merge import Leg, Merge, Place, Stretch
from stoker_service.client.owners import Assignment, Owner
from stoker_service.client.stall import LaneView
from stoker_service.client.stats import Counters
from stoker_service.client.stream import Arrival, LaneStream, OpenCall
from stoker_service.client.ticks import ticks

MISSED_BEATS: Final = 3
"""A call on which nothing is heard for so many beats is given up."""


@dataclass(frozen=True, slots=True)
class Means:
    """What a session's flows share. ``request`` holds what every stream of the session asks for."""

    control: Control
    peers: Peers
    pool: BufferPool
    counters: Counters
    request: wire.StreamRequest
    prefetch_bytes: int
    in_order: bool
    killers: Killers = field(default_factory=Killers)
    """Samples that ended workers, as far as batches told of them."""


class Flow:
    """Streams batches from one position on, until it is closed.

    Threads: one for each open lane, which receives; *ask*, which opens lanes and sends credits; *watch*, which gives
    up calls that went silent; and the consumer, whoever calls :meth:`take`. They meet under one lock, which nobody
    holds while waiting. The consumer is the main thread, where Ctrl-C may come between any two steps of Python code:
    it takes plain locks and waits in a SimpleQueue, both in C, where a Condition could leave its lock taken for ever.
    """

    def __init__(self, means: Means, legs: Iterator[Leg]) -> None:
        self.lock = threading.Lock()
        self._means = means
        self._merge = Merge(legs, prefetch_bytes=means.prefetch_bytes, in_order=means.in_order)
        self._legs: dict[int, Leg] = {}
        self._lanes: dict[tuple[int, int], list[LaneStream]] = {}
        self._arrivals: dict[Place, Arrival] = {}
        self._ready: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_waited_for = False
        self._mail: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_poked = False
        self._stop_watch: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._crash: BaseException | None = None
        self._closed = False
        self._threads = (
            threading.Thread(target=self._run_ask, name="stoker-ask", daemon=True),
            threading.Thread(target=self._run_watch, name="stoker-watch", daemon=True),
        )

    def start(self) -> None:
        """Begin; once only."""
        for thread in self._threads:
            thread.start()
        self._poke()

    # -- consumer -----------------------------------------------------------------------------------------------------

    def take(self) -> tuple[Place, Arrival] | None:
        """The batch to hand out now; None, and the mark that it is waited for, if it is not here."""
        with self.lock:
            if self._closed:
                raise ClosedError("the loader was closed while a batch was waited for")
            place = self._merge.take()
            if place is None:
                if self._crash is not None:
                    raise self._crash
                self._is_waited_for = True
                return None
            arrival = self._arrivals.pop(place)
        self._poke()
        return place, arrival

    def wait(self, deadline_s: float) -> bool:
        """Wait until something changed; False if nothing did until the deadline."""
        try:
            self._ready.get(timeout=max(0.0, deadline_s - time.monotonic()))
        except queue.Empty:
            return False
        return True

    @property
    def queued_bytes(self) -> int:
        """Bytes asked for or here, and not handed out."""
        return self._merge.held_bytes

    def missing(self) -> tuple[Place | None, LaneView | None]:
        """The batch that is needed first, and how its lane stands."""
        with self.lock:
            place = self._merge.first_missing
            if place is None:
                return None, None
            found = [stream for key in self._lanes if key[0] == place.epoch for stream in self._lanes[key]]
            leg = self._legs.get(place.epoch)
            lane = place.batch_index % leg.num_lanes if leg else -1
            for stream in found:
                if stream.stretch.lane == lane and stream.holds(place.batch_index):
                    return place, _view(stream)
            return place, None

    def is_live(self) -> bool:
        """Whether threads of this flow still run."""
        with self.lock:
            streams = [stream for lane in self._lanes.values() for stream in lane]
        return any(stream.is_alive for stream in streams) or any(thread.is_alive() for thread in self._threads)

    def close(self, deadline_s: float) -> None:
        """End all threads, waiting for them until ``deadline_s`` of the monotonic clock; harmless again."""
        with self.lock:
            self._closed = True
            streams = [stream for lane in self._lanes.values() for stream in lane]
            for stream in streams:
                stream.is_closed = True
            calls = [stream.call for stream in streams if stream.call is not None]
            self._wake_consumer()
        for call in calls:
            call.cancel("the loader was closed")
        for stream in streams:
            stream.wake()
        self._mail.put(None)
        self._stop_watch.put(None)
        for stream in streams:
            stream.join(deadline_s)
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.is_alive():
                thread.join(max(0.0, deadline_s - time.monotonic()))
        with self.lock:
            self._arrivals.clear()

    def _wake_consumer(self) -> None:
        if self._is_waited_for:
            self._is_waited_for = False
            self._ready.put(None)

    # -- ask ----------------------------------------------------------------------------------------------------------

    def _poke(self) -> None:
        """Have the ask thread look; many at once are one."""
        if not self._is_poked:
            self._is_poked = True
            self._mail.put(None)

    def _run_ask(self) -> None:
        try:
            while not self._closed:
                self._mail.get()
                self._is_poked = False
                self._ask()
        except BaseException as error:  # noqa: BLE001  # the thread's outermost loop: the trainer must hear of it
            with self.lock:
                self._crash = error
                self._wake_consumer()

    def _ask(self) -> None:
        """Open the lanes and send the credits that are due."""
        with self.lock:
            if self._closed:
                return
            asked = self._merge.ask()
            begun: list[LaneStream] = []
            for leg in self._merge.legs_to_open():
                self._legs[leg.epoch] = leg
                begun += [self._add(stretch) for stretch in leg.first_stretches()]
            for place in asked:
                begun += self._allow(place)
            self._forget_epochs()
            streams = [stream for lane in self._lanes.values() for stream in lane]
            credits_due = [due for stream in streams if (due := stream.to_send()) is not None]
        for stream in begun:
            stream.begin()
        for call, num_batches, num_copied in credits_due:
            call.credit(num_batches, num_copied)

    def _add(self, stretch: Stretch) -> LaneStream:
        stream = LaneStream(self, stretch)
        self._lanes.setdefault((stretch.epoch, stretch.lane), []).append(stream)
        return stream

    def _allow(self, place: Place) -> list[LaneStream]:
        """Let a batch be asked for by the stream that holds it; returns that stream if it is new."""
        leg = self._legs[place.epoch]
        lane = self._lanes.setdefault((place.epoch, place.batch_index % leg.num_lanes), [])
        stream = next((stream for stream in lane if stream.holds(place.batch_index)), None)
        begun = []
        if stream is None:
            stream = self._add(leg.stretch(place.batch_index))
            begun.append(stream)
        if stream.failure is not None:
            self._arrive(place, Arrival(failure=stream.failure))
        else:
            stream.num_allowed += 1
        return begun

    def _forget_epochs(self) -> None:
        first = self._merge.first_missing
        if first is not None:
            for epoch in [epoch for epoch in self._legs if epoch < first.epoch - 1]:
                del self._legs[epoch]

    def _arrive(self, place: Place, arrival: Arrival) -> None:
        self._arrivals[place] = arrival
        self._merge.arrived(place)
        self._wake_consumer()

    # -- watch --------------------------------------------------------------------------------------------------------

    def _run_watch(self) -> None:
        for heard_s in ticks(self._means.control.beat_s / 2, self._stop_watch):
            if self._closed:
                return
            for call in self._silent(heard_s):
                limit_s = MISSED_BEATS * call.peer.beat_s
                call.cancel(f"{call.peer.owner} was silent for {limit_s:g} s")

    def _silent(self, passed_s: float) -> list[OpenCall]:
        found = []
        with self.lock:
            for stream in [stream for lane in self._lanes.values() for stream in lane]:
                call = stream.call
                if call is not None and call.is_reading and stream.num_asked:
                    call.silent_s += passed_s
                    if call.silent_s > MISSED_BEATS * call.peer.beat_s and not call.why_cancelled:
                        found.append(call)
        return found

    # -- called by the control thread ---------------------------------------------------------------------------------

    def on_assignment(self, assignment: Assignment) -> None:
        """Move the lanes that have another owner: what was asked for comes from the old one, the rest from the new."""
        begun: list[LaneStream] = []
        emptied: list[OpenCall] = []
        with self.lock:
            streams = [] if self._closed else [stream for lane in self._lanes.values() for stream in lane]
            for stream in streams:
                owner, call = assignment.owner(stream.stretch.lane), stream.call
                if owner is None or call is None or call.peer.owner == owner or stream.is_over():
                    continue
                cut = stream.cut()
                if cut is not None:
                    rest = self._add(cut[0])
                    rest.num_allowed = cut[1]
                    rest.suspects.update(stream.suspects)
                    begun.append(rest)
                    self._means.counters.moves += 1
                if stream.is_over():
                    emptied.append(call)
        for stream in begun:
            stream.begin()
        for call in emptied:
            call.cancel("its lane has another owner")
        for stream in streams:
            stream.wake()

    # -- called by the lanes' threads ---------------------------------------------------------------------------------

    @property
    def peers(self) -> Peers:
        return self._means.peers

    @property
    def pool(self) -> BufferPool:
        return self._means.pool

    def owner(self, lane: int) -> Owner | None:
        """See :class:`stoker_service.client.stream.Host`, here and below."""
        return self._means.control.assignment.owner(lane)

    def request(self, stretch: Stretch, *, takes_arena: bool) -> wire.StreamRequest:
        with self.lock:
            lanes = self._legs[stretch.epoch].position.lanes
        request = wire.StreamRequest()
        request.CopyFrom(self._means.request)
        request.epoch = stretch.epoch
        request.ranges.extend(bound for part in lanes.ranges.parts for bound in part)
        request.batch_size, request.num_lanes = lanes.batch_size, lanes.num_lanes
        request.batch_start, request.batch_stop, request.batch_stride = stretch.start, stretch.stop, stretch.stride
        request.takes_arena = takes_arena
        request.killers.extend(
            wire.Killer(sample=one.sample, reason=one.reason) for one in self._means.killers.since(0)
        )
        return request

    def on_open(self) -> None:
        self._poke()

    def on_begin(self, place: Place, num_bytes: int) -> None:
        with self.lock:
            self._merge.begun(place, num_bytes)
        self._poke()

    def on_arrival(self, place: Place, arrival: Arrival) -> None:
        with self.lock:
            if self._closed:
                return
            counters = self._means.counters
            counters.receive_s += arrival.receive_s
            counters.copy_s += arrival.copy_s
            if arrival.begin is not None:
                counters.bytes_received += arrival.begin.num_bytes
                self._means.killers.add(Killer(one.sample, one.reason) for one in arrival.begin.killers)
                counters.arena_batches += bool(arrival.begin.pieces)
                counters.socket_batches += not arrival.begin.pieces
            self._arrive(place, arrival)
        self._poke()

    def on_failure(self, stream: LaneStream, error: BaseException) -> None:
        with self.lock:
            if self._closed:
                return
            stretch = stream.stretch
            for i in range(stream.num_allowed):
                self._arrive(Place(stretch.epoch, stream.start + i * stretch.stride), Arrival(failure=error))
            stream.num_allowed = 0

    def on_gone(self, owner: Owner, reason: str) -> None:
        with self.lock:
            self._means.counters.reconnects += 1
        if reason:
            self._means.control.report(owner, reason)
        else:
            self._means.control.kick()

    def on_end(self, stream: LaneStream) -> None:
        key = (stream.stretch.epoch, stream.stretch.lane)
        with self.lock:
            if stream.failure is not None:
                return  # it stays, to fail what is still to be asked for
            lane = self._lanes.get(key, [])
            if stream in lane:
                lane.remove(stream)
            if not lane:
                self._lanes.pop(key, None)


def _view(stream: LaneStream) -> LaneView:
    since_s = time.monotonic() - stream.doing_since_s
    return LaneView(stream.stretch.lane, stream.doing, since_s, stream.last_word, stream.last_trouble)
