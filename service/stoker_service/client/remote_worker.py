"""One worker of a loader, as a process at a service: from the search for a place until it is lost."""

from __future__ import annotations

import contextlib
import logging
import queue
import random
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa

from stoker.batch.pool import BufferPool
from stoker.compat.wire import in_hand_text
from stoker.errors import ClosedError, ServiceError, SpecError, StallError, StokerError
from stoker_proto.v1 import stream_pb2 as wire
from stoker_service.client import vacancies
from stoker_service.client.arenas import Peers
from stoker_service.client.control import Control
from stoker_service.client.opening import REFUSED_AFTER_S, SAY_AFTER_S
from stoker_service.client.order_call import Cargo, OrderCall
from stoker_service.client.owners import Owner
from stoker_service.client.pauses import pause_s
from stoker_service.client.stall import no_worker_text
from stoker_service.client.stream import Broken
from stoker_service.transport.decode import Assembly
from stoker_service.transport.errors import from_wire
from stoker_service.transport.flight import translate

MAX_CARGOES: Final = 4
"""Datasets that a worker may ask for, the last that it was told of: iterations may begin faster than it reads."""

_LOG: Final = logging.getLogger("stoker")


@dataclass(frozen=True, slots=True)
class Gone:
    """The worker is lost; ``is_fault`` is False if it was sent away in good order."""

    cause: str
    is_fault: bool


News: TypeAlias = memoryview | Gone | BaseException
"""What a process said; that it is lost; or what makes it useless to look for another one."""


class Host(Protocol):
    """What the workers of one crew share."""

    @property
    def control(self) -> Control: ...

    @property
    def peers(self) -> Peers: ...

    @property
    def pool(self) -> BufferPool: ...

    @property
    def wait_s(self) -> float:
        """How long a place may be looked for."""

    def request(self, worker_index: int) -> wire.StreamRequest:
        """What to open a call with."""

    def tell(self, worker: RemoteWorker, news: News) -> None:
        """Something happened; any thread."""


class RemoteWorker:
    """A process at some worker of the service, found and talked with by two threads of its own.

    Orders may be given from the beginning on: they wait until there is a process. The fields without underscore are the
    crew's, whose thread alone uses them; ``digest`` is that of the cargo that the process was given.
    """

    def __init__(self, host: Host, worker_index: int) -> None:
        self.worker_index = worker_index
        self.in_hand: dict[int, Any] = {}  # keys by batch index, in the order in which they were asked for
        self.digest = ""
        self.is_lost = False
        self._host = host
        self._orders: queue.SimpleQueue[tuple[wire.Order | None, Cargo | None]] = queue.SimpleQueue()
        self._cargoes: deque[Cargo] = deque(maxlen=MAX_CARGOES)
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._tried: list[Owner] = []
        self._chance = random.Random()  # jitter is to differ between workers
        self._is_closed = False
        self._call: OrderCall | None = None
        self._doing = "looks for a place at the service"
        self._doing_since_s = time.monotonic()
        self._last_word = ""
        self._cpu_s = self._seen_cpu_s = -1.0
        self._reader = threading.Thread(target=self._run, name=f"stoker-remote-{worker_index}", daemon=True)
        self._sender = threading.Thread(target=self._send_all, name=f"stoker-orders-{worker_index}", daemon=True)

    # -- called by the crew -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Look for a place; once only."""
        self._reader.start()

    def order(self, order: wire.Order, cargo: Cargo | None = None) -> None:
        """Give an order, with the cargo that it names. Does not block."""
        self._orders.put((order, cargo))

    def look_again(self) -> None:
        """The owners changed; any thread."""
        self._news.put(None)

    @property
    def call(self) -> OrderCall | None:
        """The call, once there is a process; for who watches it."""
        return self._call

    def should_move(self) -> bool:
        """Whether its lane has another owner, which was not tried in vain before it came to be where it is."""
        call, owner = self._call, self._host.control.assignment.owner(self.worker_index)
        return call is not None and owner is not None and owner != call.peer.owner and owner not in self._tried

    def is_active(self) -> bool:
        """Whether the process has used the processor since the last call, by its beats; True if there is none yet."""
        before, self._seen_cpu_s = self._seen_cpu_s, self._cpu_s
        return before < 0 or self._cpu_s != before

    def doing(self) -> str:
        """What it is doing, for people."""
        since_s = time.monotonic() - self._doing_since_s
        word = f": {self._last_word}" if self._last_word else ""
        service = "" if self._call is not None else f"; {self._host.control.describe()}"
        doing = f"{in_hand_text(self.in_hand)}, which {self._doing} since {since_s:.1f} s"
        return f"worker {self.worker_index}{doing}{word}{service}"

    def lose(self, gone: Gone) -> str:
        """Give it up; returns what became of it, for people."""
        self.is_lost = True
        return f"{gone.cause}{in_hand_text(self.in_hand)}"

    def close(self) -> None:
        """Hang up, which ends the process; returns at once. Harmless again."""
        self._is_closed = True
        self._news.put(None)
        call = self._call
        if call is not None:
            call.cancel("closed")

    def join(self, deadline_s: float) -> None:
        """Wait for the threads, which were told to end."""
        for thread in (self._reader, self._sender):
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(max(0.0, deadline_s - time.monotonic()))

    # -- the thread that reads ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        call = None
        try:
            call = self._call = self._placed()
            if self._is_closed:
                raise ClosedError("closed while a place was looked for")
            self._sender.start()
            self._do(f"is at {call.peer.owner}")
            self._last_word = ""
            self._receive_all(call)
        except ClosedError:
            pass
        except BaseException as error:  # noqa: BLE001  # the thread's outermost loop: the trainer must hear of it
            self._host.tell(self, error)
        finally:
            self._is_closed = True
            if call is not None:
                call.close()
            self._orders.put((None, None))

    def _receive_all(self, call: OrderCall) -> None:
        """Pass on what the process says, until it is lost."""
        who = f"worker {self.worker_index}"
        try:
            while True:
                self._receive(call)
        except Broken as broken:
            self._say_gone(Gone(broken.reason, is_fault=not broken.is_leaving))
        except StopIteration:
            self._say_gone(Gone(f"{who} is lost: {call.peer.owner} ended the stream", is_fault=True))
        except StokerError:
            raise
        except (pa.ArrowException, OSError) as error:
            self._host.peers.drop(call.peer)
            reason = call.why_cancelled or str(translate(error, call.peer.owner.location))
            if not self._is_closed:
                self._host.control.report(call.peer.owner, reason)
            is_fault = not (call.was_silent or self._lives(call.peer.owner))
            self._say_gone(Gone(f"{who} at {call.peer.owner} is lost: {reason}", is_fault))

    def _lives(self, owner: Owner) -> bool:
        """Whether a worker answers whose call broke: then the network did, and nothing that the process had in hand."""
        if self._is_closed:
            return False
        try:
            self._host.peers.of(owner)
        except StokerError:
            return False
        return True

    def _say_gone(self, gone: Gone) -> None:
        if not self._is_closed:
            self._do("is gone")
            self._host.tell(self, gone)

    def _receive(self, call: OrderCall) -> None:
        """Take one message. Raises Broken if it is the last one, or what the worker says is wrong."""
        message, part = call.read()
        owner = call.peer.owner
        match message.WhichOneof("kind"):
            case "beat":
                self._last_word, self._cpu_s = message.beat.text, message.beat.cpu_s
            case "batch":
                self._host.tell(self, self._collected(call, message.batch.num_bytes, part))
            case "wanted":
                self._orders.put((None, self._wanted(call, message.wanted.payload)))
            case "error":
                raise from_wire(message.error)
            case "leaving":
                self._host.control.kick()  # its lane has another owner by now
                raise Broken(f"worker {self.worker_index} has to leave {owner}, which drains or stops", is_leaving=True)
            case "died":
                pid, text = message.died.pid, message.died.text
                raise Broken(f"worker {self.worker_index} (pid {pid} at {owner}) {text}")
            case kind:
                raise Broken(f"worker {self.worker_index} at {owner} sent what does not belong here ({kind})")

    def _wanted(self, call: OrderCall, digest: str) -> Cargo:
        for cargo in list(self._cargoes):
            if cargo.digest == digest:
                return cargo
        raise Broken(f"{call.peer.owner} wants a dataset that worker {self.worker_index} was not told to take")

    def _collected(self, call: OrderCall, num_bytes: int, part: pa.RecordBatch | None) -> memoryview:
        """All bytes of what the process said."""
        assembly = Assembly(num_bytes, self._host.pool)
        while True:
            if part is not None:
                assembly.add(part)
            if not assembly.num_missing:
                return assembly.taken().data
            message, part = call.read()
            kind = message.WhichOneof("kind")
            if kind != "slice":
                raise Broken(f"{kind or 'an unknown message'} of {call.peer.owner} came in the middle of a batch")

    # -- finding a place ----------------------------------------------------------------------------------------------

    def _placed(self) -> OrderCall:
        """A call whose worker has granted a process. Raises StallError, SpecError, ClosedError, what a worker says."""
        begun_s = time.monotonic()
        attempt, trouble, has_said = 0, "", False
        while True:
            owner = vacancies.next_place(self._host.control, self.worker_index, self._tried)
            if owner is not None:
                found = self._asked(owner)
                if isinstance(found, OrderCall):
                    return found
                trouble = found
                self._tried.append(owner)
                continue
            waited_s = time.monotonic() - begun_s
            self._give_up(waited_s, trouble)
            reason = trouble or self._host.control.assignment.reason or "no worker is registered"
            self._last_word = reason
            if waited_s >= SAY_AFTER_S and not has_said:
                has_said = True
                _LOG.warning(
                    "worker %d waits for a place, up to %g s: %s", self.worker_index, self._host.wait_s, reason
                )
            self._pause(min(pause_s(attempt, self._chance), max(0.0, self._host.wait_s - waited_s)))
            self._tried.clear()
            attempt += 1

    def _asked(self, owner: Owner) -> OrderCall | str:
        """A call to this worker, or why it has no place."""
        call, trouble = None, "closed"
        try:
            call = OrderCall(self._host.peers.of(owner), self._host.request(self.worker_index))
            self._call = call  # who watches or closes can cancel it
            self._check_open()
            trouble = self._refusal(call)
        except StopIteration:
            trouble = f"{owner} ended the stream"
        except (pa.ArrowException, OSError) as error:
            trouble = self._unreachable(owner, call, error)
        finally:
            if trouble and call is not None:
                self._call = None
                call.close()
        return call if call is not None and not trouble else trouble

    def _refusal(self, call: OrderCall) -> str:
        """Why this worker has no place; empty if it has one. Raises what it says is wrong."""
        message, _ = call.read()
        match message.WhichOneof("kind"):
            case "beat":
                return ""
            case "full":
                num_processes = message.full.num_processes
                return f"all {num_processes} processes of {call.peer.owner} are taken (--max-processes)"
            case "leaving":
                self._host.control.kick()
                return f"{call.peer.owner} drains or stops"
            case "error":
                raise from_wire(message.error)
            case kind:
                return f"{call.peer.owner} answered with {kind}"

    def _unreachable(self, owner: Owner, call: OrderCall | None, error: BaseException) -> str:
        self._check_open()
        if isinstance(error, StokerError) and not isinstance(error, ServiceError):
            raise error
        why = call.why_cancelled if call is not None else ""
        reason = why or str(error if isinstance(error, ServiceError) else translate(error, owner.location))
        if call is not None:
            self._host.peers.drop(call.peer)
        self._host.control.report(owner, reason)
        return reason

    def _give_up(self, waited_s: float, trouble: str) -> None:
        """Raise if it is no use to look any longer."""
        self._check_open()
        control, wait_s = self._host.control, self._host.wait_s
        assignment = control.assignment
        if assignment.is_refusal and waited_s >= min(REFUSED_AFTER_S, wait_s):
            raise SpecError(assignment.reason)
        if waited_s >= wait_s:
            raise StallError(no_worker_text(wait_s, assignment.reason or trouble, control.describe()))

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("closed while a place was looked for")

    def _pause(self, seconds: float) -> None:
        """Wait for news of the owners."""
        with contextlib.suppress(queue.Empty):
            self._news.get(timeout=seconds)
        self._check_open()

    # -- the thread that sends ----------------------------------------------------------------------------------------

    def _send_all(self) -> None:
        """Give the orders, one by one. A call that broke is left to its reader."""
        call = self._call
        assert call is not None, "it is started once there is a call"
        with contextlib.suppress(pa.ArrowException, OSError):
            while True:
                order, cargo = self._orders.get()
                if order is not None:
                    if cargo is not None:
                        self._cargoes.append(cargo)
                    call.order(order)
                elif cargo is not None:
                    call.send(cargo)
                else:
                    return

    def _do(self, what: str) -> None:
        self._doing, self._doing_since_s = what, time.monotonic()
