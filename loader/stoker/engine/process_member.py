"""One worker process of a pipeline, as the trainer sees it."""

from __future__ import annotations

import time
from collections import Counter, deque

from stoker.engine.killers import Killer, Killers
from stoker.engine.process_share import Slot
from stoker.engine.process_wire import (
    Allow,
    Answer,
    Ask,
    Begin,
    Counts,
    Failed,
    Made,
    Order,
    Ready,
    Setup,
    report_of,
    send_order,
)
from stoker.errors import DataError, StokerError, WorkerError
from stoker.plan.resume import Position
from stoker.processes.channel import Channel, ChannelClosedError, Message, wait
from stoker.processes.launch import WorkerProcess
from stoker.processes.lent import LentMemory
from stoker.processes.payload import Payload

_ANSWER_S = 1.0
"""How long a worker has to say what it waits for."""

MAX_DEATHS = 2
"""So many workers that die over one batch, or at their start, are no accident."""

_ENDING_S = 1.0
"""How long a worker that hung up has until it is taken for one that hangs."""


class Member:
    """What one worker is asked for and what came of it; for one thread.

    Its batches come in the order they were granted. Nothing here blocks, but for :meth:`waits_for` and
    :meth:`ended`, a second each.
    """

    def __init__(self, setup: Setup, payload: Payload, fingerprint: str, killers: Killers) -> None:
        self.index = setup.worker_index
        self._setup = setup
        self._payload = payload
        self._fingerprint = fingerprint
        self._killers = killers  # of all members
        self._num_told = 0  # of the killers, to this process
        self.process: WorkerProcess | None = None
        """None once it cannot work at all."""
        self.is_lost = False
        """It has hung up; :meth:`ended` says how, and :meth:`start` puts another in its place."""
        self.received: deque[Made | BaseException] = deque()
        """What was made of the batches that were granted, in order; nothing comes after an error."""
        self._granted: deque[Slot] = deque()  # and not received
        self._memory: LentMemory | None = None
        self._is_ready = False
        self._run = -1
        self._num_received = 0  # since the last Begin
        self._num_allowed = 0
        self._num_careful = 0  # batches that are made one at a time, since a worker died over them
        self._deaths: Counter[Slot | None] = Counter()  # of this run, by the batch in hand; None: before it was ready
        self._answer: Answer | None = None
        self._counts = Counts()
        self._former_counts = Counts()

    @property
    def name(self) -> str:
        process = "no process" if self.process is None else f"process {self.process.pid}"
        return f"worker {self.index} of {self._setup.num_workers} ({process})"

    @property
    def channel(self) -> Channel:
        assert self.process is not None, "only a worker that works is talked to"
        return self.process.channel

    @property
    def counts(self) -> Counts:
        """What this worker and those before it have done."""
        return self._former_counts + self._counts

    # -- orders -------------------------------------------------------------------------------------------------------

    def start(self, process: WorkerProcess) -> None:
        """Put a fresh process in the place of the one before it; the run has to be begun anew."""
        self._former_counts, self._counts = self.counts, Counts()
        self._memory, self._is_ready, self.is_lost, self._num_told = None, False, False, 0
        self.process = process
        self._send(self._setup, (self._payload.fd,))

    def begin(self, run: int, position: Position) -> None:
        """Begin a run: what was asked for before is given up."""
        self._run = run
        self._granted.clear()
        self.received.clear()
        self._num_careful = 0
        self._deaths.clear()
        self._begin(position)

    def go_on(self, position: Position) -> None:
        """Have a fresh process do what the one before it left, of the same run, which stands at ``position``."""
        self._num_careful = len(self._granted)
        self._begin(position)

    def grant(self, slot: Slot) -> None:
        """Have the next batch of its share made, once :meth:`allow` is called."""
        self._granted.append(slot)

    def allow(self) -> None:
        """Tell it how many batches it may make, if that has changed, and of which samples it would die."""
        num_allowed = self._may_make()
        if num_allowed != self._num_allowed and self.process is not None:
            self._num_allowed = num_allowed
            self._send(Allow(num_allowed, self._returned(), self._untold()))

    def _begin(self, position: Position) -> None:
        self._num_received = 0
        self._num_allowed = self._may_make()
        begin = Begin(
            self._run,
            position,
            len(self.received),
            self._num_allowed,
            self._num_careful,
            self._returned(),
            self._untold(),
        )
        self._send(begin)

    def _may_make(self) -> int:
        num_granted = len(self._granted)
        return self._num_received + (min(1, num_granted) if self._num_careful else num_granted)

    def _returned(self) -> tuple[int, ...]:
        return () if self._memory is None else tuple(self._memory.take_returned())

    def _untold(self) -> tuple[Killer, ...]:
        killers = self._killers.since(self._num_told)
        self._num_told += len(killers)
        return killers

    def _send(self, order: Order, fds: tuple[int, ...] = ()) -> None:
        try:
            send_order(self.channel, order, fds)
        except ChannelClosedError:
            self.is_lost = True

    # -- reports ------------------------------------------------------------------------------------------------------

    def receive(self) -> None:
        """Take in all that has come."""
        channel = self.channel
        try:
            while self.process is not None and (message := channel.receive(0.0)) is not None:
                self._note(message)
        except ChannelClosedError:
            self.is_lost = True

    def _note(self, message: Message) -> None:
        match report_of(message, self._memory):
            case Ready(fingerprint):
                self._memory = LentMemory.of(message.fds[0]) if message.fds else None
                self._is_ready = True
                del self._deaths[None]
                if fingerprint != self._fingerprint:
                    self._end(DataError(f"{self.name} found other data than were there when the loader was made"))
            case Made() as made:
                self._counts = made.counts
                self._killers.add(made.killers)
                if made.run == self._run:
                    self._num_received += 1
                    self._num_careful = max(0, self._num_careful - 1)
                    self._granted.popleft()
                    self.received.append(made)
                    self.allow()
            case Failed(None, error):
                self._end(error)
            case Failed(run, error):
                if run == self._run:
                    self.received.append(error)
            case Answer() as answer:
                self._answer = answer

    def _end(self, error: BaseException) -> None:
        """It is of no use any more."""
        self.received.append(error)
        if self.process is not None:
            self.process.close(time.monotonic())
            self.process = None

    # -- trouble ------------------------------------------------------------------------------------------------------

    def ended(self) -> str | None:
        """Say how a lost worker ended, and what another one goes on with; None if it must not be replaced.

        That is so if two have died over the same batch, or before they were ready: then an error is in ``received``.
        """
        assert self.process is not None, "it was there until now"
        how = f"{self.name} {self.process.ending(_ENDING_S) or 'hung up'}"
        first = self._granted[0] if self._granted else None
        if first is not None or not self._is_ready:
            in_hand = first if self._is_ready else None
            self._deaths[in_hand] += 1
            if self._deaths[in_hand] == MAX_DEATHS:
                over = f"while it made {in_hand}" if in_hand is not None else "before it had opened the data"
                self._end(WorkerError(f"{how} {over}, like one before it"))
                return None
        self.process.close(time.monotonic())
        tried = ", and tries their samples in a process of their own first" if self._granted else ""
        return f"{how} with {self._in_hand()} in hand; another one takes its place{tried}"

    def _in_hand(self) -> str:
        """What it was granted and had not delivered, in words."""
        if not self._granted:
            return "no batch"
        num_more = len(self._granted) - 1
        return f"{self._granted[0]}" + (f" and {num_more} more" if num_more else "")

    def waits_for(self) -> tuple[str, str]:
        """The stage that its next batch is in, and a text that says more."""
        if self.process is None or self.is_lost:
            return "start", f"{self.name} is to be replaced"
        if not self._is_ready:
            return "start", f"{self.name} has not opened the data yet{self._silence()}"
        self._answer = None
        self._send(Ask())
        answer = self._wait_for_answer(time.monotonic() + _ANSWER_S)
        if answer is None:
            return "worker", f"{self.name} does not answer{self._silence()}"
        return answer.stage, f"{answer.text}; in {self.name}"

    def _wait_for_answer(self, deadline_s: float) -> Answer | None:
        while self._answer is None and not self.is_lost:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or self.process is None:
                break
            wait([self.channel], left_s)
            self.receive()
        return self._answer

    def _silence(self) -> str:
        if self.process is None:
            return ""
        if self.process.is_stopped():
            return "; it is stopped, by a signal or a debugger"
        stack = self.process.stack()
        return f"; it is at\n{stack}" if stack else ""

    def check_no_batch_missing(self, slot: Slot, made: Made) -> None:
        """Raise StokerError if ``made`` is not the batch that was asked for: a fault of ours."""
        found = made.delivery
        if (found.epoch, found.batch_index) != (slot.epoch, slot.batch_index):
            raise StokerError(f"{self.name} made batch {found.batch_index} of epoch {found.epoch} instead of {slot}")
