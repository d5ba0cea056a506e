"""The worker's talk with the dispatcher: registers, beats, and hears whether to drain or stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

import grpc

from stoker.errors import StokerError
from stoker.storage.rate import RateLimits
from stoker_proto.v1 import control_pb2 as wire
from stoker_proto.v1 import control_pb2_grpc
from stoker_service import channel, versions
from stoker_service.addresses import Address
from stoker_service.members import Member, Members

CALL_S: Final = 2.0
"""How long one call may take."""

FIRST_BEAT_S: Final = 0.25
"""Between tries until a dispatcher has said what its beat is."""

MAX_MISSED: Final = 3
"""Beats that may fail in a row before the worker says that it is not registered."""

_LOG: Final = logging.getLogger("stoker")


class Agent:
    """Keeps the dispatcher informed, in one thread, from :meth:`start` to :meth:`close`.

    A dispatcher that does not answer is tried at each beat, for ever; what the worker does for its streams does not
    depend on it. ``report`` makes the beat. ``on_drain``, ``on_last`` (nobody can take what a draining worker has) and
    ``on_stop`` are called in the thread, each once at most, and return at once. ``limits`` are told to the dispatcher
    with each beat, and set as it answers. ``on_members`` is called when the dispatcher tells who keeps ranges for the
    fleet.
    """

    def __init__(
        self,
        dispatcher: Address,
        worker: wire.Worker,
        report: Callable[[], wire.WorkerBeatRequest],
        on_drain: Callable[[], None],
        on_last: Callable[[], None],
        on_stop: Callable[[], None],
        limits: RateLimits | None = None,
        on_members: Callable[[Members], None] | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._worker = worker
        self._report = report
        self._on_drain = on_drain
        self._on_last = on_last
        self._on_stop = on_stop
        self._limits = RateLimits() if limits is None else limits
        self._on_members = on_members
        self._orders: set[str] = set()
        self._changed = threading.Condition()
        self._is_closing = False
        self._is_asked_to_beat = False
        self._num_beats = 0
        self._num_missed = 0
        self._is_registered = False
        self._trouble = "it has not reached the dispatcher yet"
        self.beat_s = 0.0
        """Seconds between two beats; 0 until the dispatcher has told."""
        self._channel, self._stub = _connected(dispatcher)
        self._thread = threading.Thread(target=self._run, name="stoker-agent", daemon=True)

    def start(self) -> None:
        """Begin to call."""
        self._thread.start()

    def unready(self) -> str | None:
        """Why the dispatcher does not count on this worker; None if it does."""
        with self._changed:
            if self._is_registered and self._num_missed < MAX_MISSED:
                return None
            return f"not registered at {self._dispatcher}: {self._trouble}"

    def beat_now(self, timeout_s: float) -> bool:
        """Beat at once, and wait for the answer; False if there is none in time."""
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            if not self._is_registered:
                return False
            before = self._num_beats + (0 if self._is_asked_to_beat else 1)
            self._is_asked_to_beat = True
            self._changed.notify_all()
            while self._num_beats < before and not self._is_closing:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return False
                self._changed.wait(left_s)
            return self._num_beats >= before

    def close(self, deadline_s: float) -> None:
        """Stop calling; a call that is under way is cut."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._channel.close()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, deadline_s - time.monotonic()))

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_closing:
            try:
                self._beat()
            except (grpc.RpcError, StokerError, ValueError) as error:  # ValueError: the channel was closed
                self._miss(error)
                if isinstance(error, grpc.Call) and error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                    self._connect_again()
            self._pause()

    def _beat(self) -> None:
        if not self._is_registered:
            self._register()
        request = self._report()
        request.prefixes.extend(wire.PrefixUse(**asdict(use)) for use in self._limits.report())
        answer: wire.WorkerBeatResponse = self._call(self._stub.WorkerBeat, request)
        with self._changed:
            self._is_registered = answer.is_known
            self._num_missed = 0
            self._num_beats += 1
            self._trouble = "the dispatcher has forgotten it"
            self._is_asked_to_beat = self._is_asked_to_beat or not answer.is_known  # at once, with a registration
            self._changed.notify_all()
        if answer.is_known:
            self._limits.set({limit.prefix: limit.requests_per_s for limit in answer.limits})
        if answer.members_version and self._on_members is not None:
            found = tuple(Member(one.worker_id, one.location) for one in answer.members)
            self._on_members(Members(answer.members_version, found))
        self._obey("stop", answer.should_stop, self._on_stop)
        self._obey("drain", answer.should_drain, self._on_drain)
        self._obey("leave, as no other worker can take its lanes", answer.is_last, self._on_last)

    def _register(self) -> None:
        hello: wire.HelloResponse = self._call(self._stub.Hello, wire.HelloRequest(version=versions.ours()))
        versions.check(hello.version, f"the dispatcher at {self._dispatcher}")
        self._call(self._stub.RegisterWorker, wire.RegisterWorkerRequest(worker=self._worker))
        with self._changed:
            self.beat_s = (hello.beat_ms or 1000) / 1000
            self._is_registered = True
        _LOG.info("registered at %s as %s", self._dispatcher, self._worker.worker_id)

    def _call(self, method: Any, request: Any) -> Any:
        return method(request, timeout=CALL_S)

    def _connect_again(self) -> None:
        """Take another connection: what lies between may have dropped this one without a word to either end."""
        with self._changed:
            if self._is_closing:
                return
            before = self._channel
            self._channel, self._stub = _connected(self._dispatcher)
        before.close()

    def _obey(self, order: str, is_given: bool, do: Callable[[], None]) -> None:
        if is_given and order not in self._orders:
            self._orders.add(order)
            _LOG.info("the dispatcher asks this worker to %s", order)
            do()

    def _miss(self, error: Exception) -> None:
        text = _text(error)
        with self._changed:
            if self._is_closing:
                return
            self._num_missed += 1
            is_news = text != self._trouble
            self._trouble = text
            if self._num_missed == MAX_MISSED:
                self._is_registered = False  # it may be another dispatcher that answers next
        if is_news:
            _LOG.warning("the dispatcher at %s: %s; it is tried again at each beat", self._dispatcher, text)

    def _pause(self) -> None:
        with self._changed:
            deadline_s = time.monotonic() + (self.beat_s or FIRST_BEAT_S)
            while not self._is_closing and not self._is_asked_to_beat:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    break
                self._changed.wait(left_s)
            self._is_asked_to_beat = False


def _connected(dispatcher: Address) -> tuple[Any, Any]:
    opened = channel.opened(dispatcher)
    return opened, control_pb2_grpc.ControlServiceStub(opened)  # type: ignore[no-untyped-call]  # generated


def _text(error: Exception) -> str:
    if isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call):
        return f"{error.code().name.lower().replace('_', ' ')}: {error.details()}"
    return str(error)
