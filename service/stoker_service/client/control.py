"""The client's talk with the dispatcher: opens the job, beats, hears who owns the lanes, reports who is gone."""

from __future__ import annotations

import contextlib
import logging
import queue
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import grpc

from stoker.errors import ClosedError, ServiceError, SpecError, StallError, StokerError
from stoker_proto.v1 import control_pb2 as wire
from stoker_proto.v1 import control_pb2_grpc
from stoker_service import channel, versions
from stoker_service.addresses import Address
from stoker_service.client import owners
from stoker_service.client.owners import Assignment, Owner
from stoker_service.client.pauses import pause_s

CALL_S: Final = 2.0
"""How long one call may take."""

REACH_S: Final = 30.0
"""How long a dispatcher that does not answer is tried when a session opens: it may be starting."""

SAY_AT_ATTEMPT: Final = 7
"""After so many attempts in vain, about 2 s, the log says what is waited for."""

LEAVE_S: Final = 0.5
"""How long the goodbye may take."""

DEFAULT_BEAT_MS: Final = 1000

_log = logging.getLogger("stoker")


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """What is consumed, and who consumes it."""

    pipeline: str
    name: str
    num_lanes: int
    world_size: int
    rank: int
    has_code: bool
    client_id: str
    host_id: str
    pipeline_bytes: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How the trainer fares: running sums since the session was opened."""

    rows: int = 0
    steps: int = 0
    wait_s: float = 0.0
    active_s: float = 0.0
    epoch: int = 0
    queued_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Report:
    owner: Owner
    reason: str


class _Kick:
    """Beat now."""


class _Leave:
    """Say goodbye and end."""


class Control:
    """The session's connection to its dispatcher; owns one thread from :meth:`start` to :meth:`close`.

    What is known of the owners stays in force while the dispatcher is away. Any thread may call.
    """

    def __init__(self, address: Address, job: JobIdentity) -> None:
        self._address = address
        self._job = job
        self._connecting = threading.Lock()
        self._channel, self._stub = _connected(address)
        self._mail: queue.SimpleQueue[_Report | _Kick | _Leave] = queue.SimpleQueue()
        self._reported: set[str] = set()
        self._said: set[Owner] = set()  # which workers the log says do not answer, since the owners last changed
        self._assignment = Assignment()
        self._chance = random.Random()  # jitter is to differ between processes
        self._trouble: tuple[float, str] | None = None
        self._closed = False
        self._reach_s = REACH_S
        self._thread: threading.Thread | None = None
        self._progress: Callable[[], Progress] = Progress
        self._on_assignment: Callable[[Assignment], None] = lambda _: None
        self.beat_s = DEFAULT_BEAT_MS / 1000

    @property
    def assignment(self) -> Assignment:
        """The owners as they were told last."""
        return self._assignment

    def open(self, timeout_s: float) -> None:
        """Say hello and open the job. Raises StokerError naming the address and what to do, within ``REACH_S``."""
        self._reach_s = min(timeout_s, REACH_S)
        deadline_s = time.monotonic() + self._reach_s
        hello = self._insist("Hello", wire.HelloRequest(version=versions.ours()), deadline_s)
        versions.check(hello.version, f"the service at {self._address}")
        self._check_limits(hello.limits)
        self.beat_s = (hello.beat_ms or DEFAULT_BEAT_MS) / 1000
        opened = self._insist("OpenJob", self._open_request(), deadline_s)
        self._assignment = owners.from_wire(opened.assignment)

    def start(self, progress: Callable[[], Progress], on_assignment: Callable[[Assignment], None]) -> None:
        """Begin to beat; once only. ``on_assignment`` is called in the thread here when the owners changed."""
        self._progress, self._on_assignment = progress, on_assignment
        self._thread = threading.Thread(target=self._run, name="stoker-control", daemon=True)
        self._thread.start()

    def follow(self, progress: Callable[[], Progress], on_assignment: Callable[[Assignment], None]) -> None:
        """Tell of other progress, and tell others of changes, from now on."""
        self._progress, self._on_assignment = progress, on_assignment

    def report(self, owner: Owner, reason: str) -> None:
        """Tell that a worker does not answer, so that the dispatcher looks itself; returns at once."""
        if owner.worker_id not in self._reported:
            self._reported.add(owner.worker_id)
            self._mail.put(_Report(owner, reason))

    def workers(self) -> list[wire.WorkerStatus]:
        """All workers that the dispatcher knows, as of now; none if it does not answer within ``CALL_S``."""
        try:
            return list(self._stub.Status(wire.StatusRequest(), timeout=CALL_S).workers)
        except (grpc.RpcError, ValueError):  # ValueError: the channel was closed
            return []

    def kick(self) -> None:
        """Ask for the owners now rather than at the next beat."""
        self._mail.put(_Kick())

    @property
    def answers(self) -> bool:
        """Whether the dispatcher answered when it was last called."""
        return self._trouble is None

    def describe(self) -> str:
        """How the dispatcher is, for messages."""
        if self._trouble is None:
            return f"the dispatcher at {self._address} answers"
        since_s, text = self._trouble
        return f"the dispatcher at {self._address} has not answered for {time.monotonic() - since_s:.1f} s ({text})"

    def close(self, deadline_s: float) -> None:
        """Say goodbye, if the dispatcher listens, and join the thread; harmless again."""
        with self._connecting:
            self._closed = True
        self._mail.put(_Leave())
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, deadline_s - time.monotonic()))
        elif self._thread is None:
            self._leave()
        self._channel.close()

    # -- opening ------------------------------------------------------------------------------------------------------

    def _insist(self, method: str, request: Any, deadline_s: float) -> Any:
        """Call until the dispatcher answers. Raises StokerError at the deadline, or if it refuses."""
        attempt = 0
        while True:
            left = deadline_s - time.monotonic()
            try:
                return getattr(self._stub, method)(request, timeout=max(0.05, min(left, CALL_S)))
            except grpc.RpcError as error:
                pause = pause_s(attempt, self._chance)
                may_pass = error.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
                if self._closed:
                    raise ClosedError("the session was closed while it was opened") from error
                if not may_pass or left <= pause:
                    raise _translated(error, self._address, self._reach_s) from None
                if attempt == SAY_AT_ATTEMPT:
                    _log.warning("waiting up to %g s for the service at %s", self._reach_s, self._address)
                self._mend(error)
            attempt += 1
            time.sleep(pause)

    def _check_limits(self, limits: wire.Limits) -> None:
        """Raise SpecError naming the limit of the service that the job passes."""
        job = self._job
        for what, found, most in (
            ("lanes", job.num_lanes, limits.max_lanes),
            ("bytes of pipeline, its functions included", job.pipeline_bytes, limits.max_pipeline_bytes),
        ):
            if most and found > most:
                raise SpecError(f"the pipeline has {found} {what}; the service at {self._address} takes {most} at most")

    def _open_request(self) -> wire.OpenJobRequest:
        job = self._job
        return wire.OpenJobRequest(
            job=wire.Job(
                pipeline=job.pipeline,
                name=job.name,
                num_lanes=job.num_lanes,
                world_size=job.world_size,
                has_code=job.has_code,
            ),
            client_id=job.client_id,
            rank=job.rank,
            host_id=job.host_id,
        )

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._talk()
        except Exception:  # noqa: BLE001  # the thread's outermost loop
            _log.exception("a fault of Stoker's: this loader hears no more of its dispatcher; streams go on")

    def _talk(self) -> None:
        attempt = 0
        due_s = time.monotonic() + self.beat_s
        while True:
            try:
                mail: _Report | _Kick | _Leave = self._mail.get(timeout=max(0.0, due_s - time.monotonic()))
            except queue.Empty:
                mail = _Kick()
            if isinstance(mail, _Leave) or self._closed:
                self._leave()
                return
            try:
                self._answer(mail)
            except grpc.RpcError as error:
                self._note(error)
                self._mend(error)
                due_s = time.monotonic() + min(pause_s(attempt, self._chance), self.beat_s)
                attempt += 1
            except ValueError:
                return  # the channel was closed while a call was made
            else:
                self._trouble, attempt = None, 0
                if isinstance(mail, _Kick):
                    due_s = time.monotonic() + self.beat_s

    def _answer(self, mail: _Report | _Kick) -> None:
        if isinstance(mail, _Report):
            self._reported.discard(mail.owner.worker_id)
            self._tell_unreachable(mail)
        else:
            self._beat()

    def _beat(self) -> None:
        progress = self._progress()
        response = self._stub.ClientBeat(
            wire.ClientBeatRequest(
                pipeline=self._job.pipeline,
                name=self._job.name,
                client_id=self._job.client_id,
                assignment_version=self._assignment.version,
                rows=progress.rows,
                steps=progress.steps,
                wait_s=progress.wait_s,
                active_s=progress.active_s,
                epoch=progress.epoch,
                queued_bytes=progress.queued_bytes,
            ),
            timeout=CALL_S,
        )
        if not response.is_known:
            self._open_again()
        elif response.HasField("assignment"):
            self._learn(response.assignment)

    def _tell_unreachable(self, report: _Report) -> None:
        if report.owner not in self._said:
            self._said.add(report.owner)
            _log.info("%s does not answer: %s", report.owner, report.reason)
        response = self._stub.ReportUnreachable(
            wire.ReportUnreachableRequest(
                pipeline=self._job.pipeline,
                name=self._job.name,
                client_id=self._job.client_id,
                worker_id=report.owner.worker_id,
                reason=report.reason,
            ),
            timeout=CALL_S,
        )
        if response.HasField("assignment"):
            self._learn(response.assignment)
        else:
            self._open_again()

    def _open_again(self) -> None:
        """The dispatcher was started anew, or has forgotten this client."""
        response = self._stub.OpenJob(self._open_request(), timeout=CALL_S)
        self._learn(response.assignment)

    def _learn(self, found: wire.Assignment) -> None:
        if not found.version and self._assignment.owners:
            return  # a dispatcher that has just started has not decided yet
        assignment = owners.from_wire(found)
        if assignment != self._assignment:
            self._assignment = assignment
            self._said.clear()
            self._on_assignment(assignment)

    def _note(self, error: Any) -> None:
        text = f"{error.code().name}: {error.details()}"
        if self._trouble is None:
            self._trouble = (time.monotonic(), text)
            _log.info("the dispatcher at %s does not answer (%s); streams go on", self._address, text)
        else:
            self._trouble = (self._trouble[0], text)

    def _mend(self, error: Any) -> None:
        """After a silence, take another connection: what lies between may have dropped this one without a word."""
        if error.code() != grpc.StatusCode.DEADLINE_EXCEEDED:
            return
        with self._connecting:
            if self._closed:
                return
            before = self._channel
            self._channel, self._stub = _connected(self._address)
        before.close()

    def _leave(self) -> None:
        request = wire.CloseJobRequest(pipeline=self._job.pipeline, name=self._job.name, client_id=self._job.client_id)
        with contextlib.suppress(grpc.RpcError, ValueError):  # one who cannot be told forgets us in time
            self._stub.CloseJob(request, timeout=LEAVE_S)


def _connected(address: Address) -> tuple[Any, Any]:
    unlimited = ("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)
    opened = channel.opened(address, *unlimited)
    return opened, control_pb2_grpc.ControlServiceStub(opened)  # type: ignore[no-untyped-call]  # generated


def _translated(error: Any, address: Address, reach_s: float) -> StokerError:
    """A failed call as an error that says what to do. Total over gRPC's codes."""
    code, text = error.code(), error.details() or "no reason given"
    if code == grpc.StatusCode.UNAVAILABLE:
        return ServiceError(
            f"no service answers at {address} within {reach_s:g} s ({text}); check host and port, and that it runs: "
            "`stoker up` starts one"
        )
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return StallError(
            f"the service at {address} did not answer within {reach_s:g} s; is it stopped or overloaded, or does "
            "something else listen there?"
        )
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return StokerError(f"what listens at {address} is no dispatcher of Stoker's, or an older one: {text}")
    if code in {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.OUT_OF_RANGE}:
        return SpecError(f"the service at {address} refused: {text}")
    return StokerError(f"the service at {address} failed: {text} ({code.name})")
