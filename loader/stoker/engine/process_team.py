"""The worker processes of one loader, and the batches that they are asked for."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence

from stoker.engine.killers import Killers
from stoker.engine.process_member import Member
from stoker.engine.process_share import Share, Slot
from stoker.engine.process_wire import Counts, Made, Setup
from stoker.errors import ClosedError, StallError
from stoker.plan.resume import Position
from stoker.processes.channel import Channel, wait
from stoker.processes.launch import close_all, launch, launch_all
from stoker.processes.payload import Payload

_LOG = logging.getLogger("stoker")

_PROGRAM = "stoker.engine.process_worker:main"

_CLOSE_S = 1.5
"""How long :meth:`Team.close` waits for the workers, a third of it for a call that is under way."""


class Team:
    """Has the batches of a rank made ahead, and hands them out in order.

    It has no thread: all it does is done in :meth:`next`, by the one who wants the batch. Meanwhile the workers make
    what they were granted. A worker that dies is replaced, and what it had not delivered is made again by the next: a
    batch depends on nothing but the pipeline and its place. If it was a sample that ended the worker, the next one
    finds it in a child process, and all members are told of it.
    """

    def __init__(
        self,
        share: Share,
        setups: Sequence[Setup],
        payload: Payload,
        fingerprint: str,
        timeout_s: float,
        killers: Killers,
    ) -> None:
        self._share = share
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._is_closed = False
        self._closing, self._end_of_closing = Channel.pair()  # readable once the second is closed
        self._members = [Member(setup, payload, fingerprint, killers) for setup in setups]
        self._slots: Iterator[Slot] = iter(())
        self._next_slot: Slot | None = None
        self._ahead: deque[Slot] = deque()  # granted, and not handed out
        self._run = 0
        self._at: Position | None = None
        self._position: Position | None = None
        names = [_name(member) for member in self._members]
        for member, process in zip(self._members, launch_all(_PROGRAM, names), strict=True):
            member.start(process)

    def is_at(self, position: Position) -> bool:
        """Whether the batch at ``position`` is the next of the run."""
        return self._at == position

    def next(self, position: Position, num_ahead: int) -> Made:
        """The batch at ``position``, made; another position than the expected one begins a run anew there.

        ``num_ahead`` batches beyond it may be made. Raises what its making failed with, WorkerError if that kills
        workers, StallError, ClosedError.
        """
        with self._lock:
            begun_s = time.monotonic()
            if self._is_closed:
                raise ClosedError("the loader was closed")
            if not self.is_at(position):
                self._begin(position)
            self._at = None  # after an error or Ctrl-C in here, nobody knows where it is
            self._position = position
            self._grant(num_ahead, position.epoch)
            slot = self._ahead[0]
            made = self._take(slot, begun_s)
            self._ahead.popleft()
            self._grant(num_ahead, position.epoch)
            deal = self._share.deal
            self._at = deal.after(deal.taken(position, slot.batch_index))
            return made

    def counts(self) -> Counts:
        """What all workers have done, as of the last batch of each."""
        return sum((member.counts for member in self._members), Counts())

    def close(self) -> None:
        """End all workers, and a call of :meth:`next` that waits; from any thread, and harmless again."""
        deadline_s = time.monotonic() + _CLOSE_S
        self._is_closed = True
        self._end_of_closing.close()
        is_mine = self._lock.acquire(timeout=_CLOSE_S / 3)
        try:
            close_all([member.process for member in self._members if member.process is not None], deadline_s)
            self._closing.close()
        finally:
            if is_mine:
                self._lock.release()

    def _begin(self, position: Position) -> None:
        self._run += 1
        self._slots = self._share.slots(position)
        self._next_slot = next(self._slots, None)
        self._ahead.clear()
        for member in self._members:
            if member.process is None:
                self._start(member)
            member.begin(self._run, position)

    def _grant(self, num_ahead: int, epoch: int) -> None:
        """Have so many batches made ahead, at most those of the next epoch as well."""
        while len(self._ahead) < num_ahead and self._next_slot is not None and self._next_slot.epoch <= epoch + 1:
            slot = self._next_slot
            self._ahead.append(slot)
            self._members[slot.worker_index].grant(slot)
            self._next_slot = next(self._slots, None)
        for member in self._members:
            member.allow()

    def _take(self, slot: Slot, begun_s: float) -> Made:
        member = self._members[slot.worker_index]
        self._attend(0.0)
        while not member.received:
            left_s = begun_s + self._timeout_s - time.monotonic()
            if left_s <= 0:
                stage, text = member.waits_for()
                raise StallError(f"no batch within {self._timeout_s:g} s (timeout_s): {stage}: {text}")
            self._attend(left_s)
        result = member.received.popleft()
        if isinstance(result, BaseException):
            raise result
        member.check_no_batch_missing(slot, result)
        return result

    def _attend(self, timeout_s: float) -> None:
        """Replace who died, then wait until something comes and take it in."""
        for member in self._members:
            if member.is_lost and member.process is not None:
                self._replace(member)
                timeout_s = 0.0  # there may be an error in its place
        members = [member for member in self._members if member.process is not None]
        ready = wait([self._closing, *(member.channel for member in members)], timeout_s)
        if self._closing in ready:
            raise ClosedError("the loader was closed while a batch was waited for")
        for member in members:
            if member.channel in ready:
                member.receive()

    def _replace(self, member: Member) -> None:
        told = member.ended()
        if told is None:
            return
        _LOG.warning("%s", told)
        assert self._position is not None, "workers are attended to while a batch is waited for"
        self._start(member)
        member.go_on(self._position)

    def _start(self, member: Member) -> None:
        process = launch(_PROGRAM, _name(member))
        if self._is_closed:  # meanwhile, by another thread, which did not know of this process
            process.close(time.monotonic())
            raise ClosedError("the loader was closed while a worker was started")
        member.start(process)


def _name(member: Member) -> str:
    return f"stoker-worker-{member.index}"
