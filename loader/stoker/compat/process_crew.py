"""Workers that are processes of this host."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from stoker import leaving
from stoker.compat import wire
from stoker.compat.crew import Event, Job, Lost, Task
from stoker.compat.member import Member
from stoker.compat.wire import Begin, Kind
from stoker.errors import ClosedError
from stoker.processes.channel import ChannelClosedError, Message, wait
from stoker.processes.launch import StartMethod, WorkerProcess, close_all, launch_all
from stoker.processes.lent import LentMemory
from stoker.processes.objects import inlined
from stoker.processes.payload import Payload, fingerprint, pack

_PROGRAM: Final = "stoker.compat.worker:main"  # not imported here: what it imports is the workers' own
_CLOSE_S: Final = 1.0


class ProcessCrew:
    """The :class:`stoker.compat.crew.Crew` whose workers are processes, which are kept from one iteration to the next.

    They are launched at the first. Dataset and functions are packed at an iteration that begins anew, if anything in
    them has changed, and once for all workers. With ``method="fork"`` nothing is packed: the workers are forked anew at
    each such iteration. A worker's memory stays readable here for as long as something that came from it is kept.

    In a process that the user forked from this one every method raises ClosedError, except :meth:`close`.
    """

    def __init__(self, num_workers: int, *, method: StartMethod = "forkserver", name: str = "stoker-worker") -> None:
        self._num_workers = num_workers
        self._method: Final = method
        self._name = name
        self._pid = os.getpid()
        self._members: dict[int, Member] = {}
        self._ready: deque[Member] = deque()
        self._run = 0
        self._job: Job | None = None
        self._fingerprint = b""
        self._cargo_version = 0
        self._staff = _Staff()
        self._finalizer = leaving.close_later(self, self._staff)

    @property
    def num_workers(self) -> int:
        """See :class:`stoker.compat.crew.Crew`."""
        return self._num_workers

    def begin(self, job: Job) -> None:
        """See :class:`stoker.compat.crew.Crew`. Raises what launching a process raises."""
        self._check()
        is_new = not (job.goes_on and self._members)
        if self._method == "fork" and is_new:
            self._members.clear()
            self._staff.dismiss()
        elif is_new:
            self._pack(job)
        self._run += 1
        self._job = job
        self._ready.clear()
        absent = [index for index in range(self._num_workers) if not self._is_told(index, job)]
        self._launch(absent, job)

    def submit(self, worker_index: int, task: Task) -> None:
        """See :class:`stoker.compat.crew.Crew`."""
        self._check()
        member = self._members[worker_index]
        if member.is_lost:
            return
        message = wire.task_message(self._run, task, member.take_returned())
        member.in_hand[task.batch_index] = task.keys
        # a closed channel is told by receive(), after what came through it before
        with contextlib.suppress(ChannelClosedError):
            member.channel.send(message)

    def withdraw(self, worker_index: int, task: Task) -> bool:
        """See :class:`stoker.compat.crew.Crew`."""
        self._check()
        member = self._members[worker_index]
        member.in_hand.pop(task.batch_index, None)
        with contextlib.suppress(ChannelClosedError):
            member.channel.send(wire.withdraw_message(self._run, task.batch_index))
        return True

    def receive(self, timeout_s: float) -> Event | None:
        """See :class:`stoker.compat.crew.Crew`."""
        self._check()
        deadline = time.monotonic() + timeout_s
        while True:
            while self._ready:
                event = self._next_of(self._ready.popleft())
                if event is not None:
                    return event
            members = {member.channel: member for member in self._members.values() if not member.is_lost}
            _give_back(members.values())
            ready = wait(list(members), max(0.0, deadline - time.monotonic()))
            self._check()
            if not ready:
                return None
            self._ready.extend(members[channel] for channel in ready)

    def replace(self, worker_index: int, state: Any = None) -> None:
        """See :class:`stoker.compat.crew.Crew`. Raises what launching a process raises."""
        self._check()
        assert self._job is not None, "begin() comes first"
        member = self._members[worker_index]
        if not member.is_lost:
            member.lose(time.monotonic(), 0.0)
        self._launch([worker_index], self._job, state)

    def waits_for(self, worker_index: int) -> str:
        """See :class:`stoker.compat.crew.Crew`."""
        self._check()
        return self._members[worker_index].doing()

    def is_active(self, worker_index: int) -> bool:
        """See :class:`stoker.compat.crew.Crew`."""
        self._check()
        return self._members[worker_index].is_active()

    def close(self) -> None:
        """See :class:`stoker.compat.crew.Crew`. A worker that is busy in users' code is killed after a second."""
        if self._pid != os.getpid():
            return  # the workers are the parent's
        self._staff.close()
        self._finalizer.detach()

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise ClosedError(
                f"the workers of this loader belong to process {self._pid}, from which this one ({os.getpid()}) was "
                "forked; begin a new iteration here, over a loader made here"
            )
        if self._staff.is_closed:
            raise ClosedError("the workers of this loader are closed")

    # -- beginning -----------------------------------------------------------------------------------------------------

    def _pack(self, job: Job) -> None:
        cargo = wire.cargo_of(job)
        try:
            found = fingerprint(cargo)
        except Exception:  # noqa: BLE001  # a user's __reduce__ may raise anything: pack() says which part it is
            found = b""
        if not found or found != self._fingerprint:
            self._staff.keep(pack(cargo, "loader"))
            self._fingerprint = found
            self._cargo_version += 1

    def _is_told(self, index: int, job: Job) -> bool:
        """Tell a worker that an iteration begins; False if there is none that hears it."""
        member = self._members.get(index)
        if member is None or member.is_lost:
            return False
        if member.process.ending() is not None or not self._tell(member, job, _state_for(index, job)):
            member.lose(time.monotonic(), 0.0)
            return False
        return True

    def _launch(self, indexes: list[int], job: Job, state: Any = None) -> None:
        """Start workers and tell them what begins; one that dies meanwhile is told by :meth:`receive`."""
        if not indexes:
            return
        names = [f"{self._name}-{index}" for index in indexes]
        inherited = wire.cargo_of(job) if self._method == "fork" else None
        processes = launch_all(_PROGRAM, names, method=self._method, inherited=inherited)
        self._staff.hire(processes)
        for index, process in zip(indexes, processes, strict=True):
            self._members[index] = member = Member(index, process)
            self._tell(member, job, _state_for(index, job) if state is None else state)

    def _tell(self, member: Member, job: Job, state: Any) -> bool:
        has_cargo = self._method != "fork" and member.cargo_version != self._cargo_version
        message = wire.begin_message(Begin(self._run, member.worker_index, job, state, has_cargo))
        member.in_hand = {}
        try:
            member.channel.send(message, self._staff.fds if has_cargo else ())
        except ChannelClosedError:
            return False
        member.cargo_version = self._cargo_version
        return True

    # -- receiving -----------------------------------------------------------------------------------------------------

    def _next_of(self, member: Member) -> Event | None:
        """What a worker tells next, if it is there already."""
        try:
            while (message := member.channel.receive(0.0)) is not None:
                event = self._event_of(member, message)
                if event is not None:
                    if member.channel.has_message():
                        self._ready.append(member)
                    return event
        except ChannelClosedError:
            pass
        except OSError as error:  # no descriptor, or no address space, left for its memory
            member.process.kill()
            return Lost(member.worker_index, f"{member.lose(time.monotonic())}; it was given up: {error}")
        else:
            return None
        self._check()  # it may be this side that hung up, in another thread
        return Lost(member.worker_index, member.lose(time.monotonic()))

    def _event_of(self, member: Member, message: Message) -> Event | None:
        if wire.kind_of(message.body) is Kind.HELLO:
            if message.fds:
                member.memory = LentMemory.of(*message.fds)
            return None
        answer = wire.answer_of(message.body)
        if answer.run != self._run:
            if answer.kind is Kind.MADE:
                inlined(answer.value, member.memory)  # gives its memory back
            return None
        member.in_hand.pop(answer.batch_index, None)
        return wire.event_of(answer, member.memory, member.worker_index, str(member))


class _Staff:
    """The processes and the payload of a crew: what is to be closed when the crew is forgotten."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._processes: list[WorkerProcess] = []
        self._payload: Payload | None = None
        self.is_closed = False

    @property
    def fds(self) -> tuple[int, ...]:
        """The payload's descriptor."""
        return () if self._payload is None else (self._payload.fd,)

    def keep(self, payload: Payload) -> None:
        """Keep a payload instead of the last one."""
        before, self._payload = self._payload, payload
        if before is not None:
            before.close()

    def hire(self, processes: list[WorkerProcess]) -> None:
        """Take processes on; those that have ended are forgotten."""
        self._processes = [*(process for process in self._processes if process.ending() is None), *processes]
        if self.is_closed:  # by another thread, meanwhile
            self.dismiss()

    def dismiss(self) -> None:
        """End all processes."""
        processes, self._processes = self._processes, []
        close_all(processes, time.monotonic() + _CLOSE_S)

    def close(self) -> None:
        """End everything."""
        if self._pid != os.getpid():
            return
        self.is_closed = True
        self.dismiss()
        payload, self._payload = self._payload, None
        if payload is not None:
            payload.close()


def _state_for(index: int, job: Job) -> Any:
    return job.states[index] if job.states else None


def _give_back(members: Iterable[Member]) -> None:
    """Return dropped memory before a wait, since the next task may be long in coming."""
    for member in members:
        returned = member.take_returned()
        if returned:
            with contextlib.suppress(ChannelClosedError):
                member.channel.send(wire.release_message(returned))
