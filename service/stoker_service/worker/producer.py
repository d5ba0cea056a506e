"""Makes the batches of one pipeline over one data set, once for all streams that want them."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from stoker.backends.options import AUTO_BACKEND, Backend
from stoker.backends.program import Program
from stoker.batch.pool import BufferPool
from stoker.engine.chunk_source import chunks_of
from stoker.engine.decoders import DecodePool
from stoker.engine.feed import Deal, Feed, Work
from stoker.engine.killers import Killer, Killers
from stoker.engine.maker import Maker
from stoker.engine.prepared import open_prepared, with_prepared
from stoker.engine.retries import RetryTally
from stoker.engine.stats import Counters
from stoker.engine.ticket import Ticket
from stoker.engine.tuning import default_concurrency, default_read_bytes
from stoker.errors import ClosedError, DeviceLostError, SampleError, StokerError
from stoker.formats.dataset import Dataset
from stoker.memory.arena import Arena
from stoker.pipeline import Pipeline
from stoker.plan.lanes import Lanes
from stoker.plan.order import Order
from stoker.plan.steps import Steps, Tail
from stoker.ranks import Rank
from stoker.storage.cache import CacheOptions
from stoker_service.transport.encode import Encoded, encode
from stoker_service.transport.place import bring
from stoker_service.worker.consumers import Key
from stoker_service.worker.stats import ProducerStats
from stoker_service.worker.window import Stage, ToPlan, ToStart, Window

_LOG: Final = logging.getLogger("stoker")

_ROWS_AHEAD: Final = 32
"""Rows for each thread in batches that nobody asked for: four tasks of the decoders."""

MAX_UNUSED_PLANS: Final = 16


@dataclass(frozen=True, slots=True)
class Plan:
    """What an epoch's batches are: which part of the order, dealt into which lanes, and how it ends."""

    epoch: int
    lanes: Lanes
    tail: Tail


@dataclass(frozen=True, slots=True)
class Made:
    """A batch that is there, or what its making failed with. ``ready_s``: since when its chunks were (monotonic)."""

    batch_index: int
    encoded: Encoded | None
    failure: BaseException | None
    bad: tuple[SampleError, ...]
    num_filtered: int
    conversions: tuple[str, ...]
    ready_s: float
    killers: tuple[Killer, ...] = ()


@dataclass(frozen=True, slots=True)
class Tools:
    """What all producers of a worker share; ``cache`` is that of chunks as they lie, whose folder others may use.

    ``on_device_lost`` is called with the error when a batch could not be made since the GPU is of no use any more: the
    process should end. Nobody is told of that batch: another worker can make it.
    """

    pool: BufferPool
    decode: DecodePool
    arena: Arena | None
    cache: CacheOptions | None = None
    backend: Backend = AUTO_BACKEND
    on_device_lost: Callable[[DeviceLostError], object] = _LOG.error


@dataclass(frozen=True, slots=True)
class Opened:
    """A data set with the counter of its retries."""

    dataset: Dataset
    tally: RetryTally


@dataclass(slots=True)
class _Stream:
    lane: int
    changed: threading.Condition
    careful: range
    is_closed: bool = False


class Producer:
    """One window of batches, and the maker that does what the window decides.

    One lock guards the window. A thread of its own (``stoker-produce``) plans, starts and drops; the maker's threads
    and the streams' only tell it what happened. Streams are called by the numbers that :meth:`attach` gives.
    """

    def __init__(
        self,
        fingerprint: str,
        pipeline: Pipeline,
        opened: Opened,
        program: Program,
        tools: Tools,
        *,
        memory_bytes: int,
        read_bytes: int | None,
        killers: Killers | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.dataset = opened.dataset
        self._fingerprint = fingerprint
        deal = Deal(pipeline, opened.dataset.chunks.num_samples, Rank(0, 1))
        self._feed = Feed(deal, opened.dataset.chunks)
        self._read_bytes = default_read_bytes(self._feed) if read_bytes is None else read_bytes
        self._arena = tools.arena
        self._on_device_lost = tools.on_device_lost
        self._killers = Killers() if killers is None else killers
        self._counters = Counters()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._has_changed = False
        rows_ahead = _ROWS_AHEAD * tools.decode.num_threads
        self._window = Window(memory_bytes, max_making=max(2, -(-rows_ahead // pipeline.batch_size)))
        self._streams: dict[int, _Stream] = {}
        self._numbers = itertools.count()
        self._plans: dict[Plan, int] = {}
        self._plan_of: dict[int, Plan] = {}
        self._orders: dict[int, Order] = {}
        self._next_work: tuple[tuple[Key, int], Work] | None = None
        self._tickets: dict[Key, Ticket | None] = {}
        self._keys: dict[int, Key] = {}
        self._made: dict[Key, Made] = {}
        self._is_urgent = False
        self._failure: BaseException | None = None
        self._sums: Counter[str] = Counter()
        self._prepared = open_prepared(pipeline, program, opened.dataset, tools.decode.num_threads, tools.cache)
        chunks = chunks_of(opened.dataset, self._feed, opened.tally, all_ranks=True)
        program, source = with_prepared(self._prepared, program, chunks)
        self._maker = Maker(
            pipeline,
            opened.dataset,
            source,
            program,
            tools.pool,
            tools.decode,
            default_concurrency(pipeline.source),
            self._counters,
            opened.tally,
            self,
            lambda: self._is_urgent,
            killers=self._killers,
            backend=tools.backend,
        )
        self._thread = threading.Thread(target=self._run, name="stoker-produce", daemon=True)
        self._thread.start()

    # -- called by streams --------------------------------------------------------------------------------------------

    def learn(self, killers: Iterable[Killer]) -> None:
        """Some samples ended another worker."""
        self._killers.add(killers)

    def attach(self, plan: Plan, batches: range, lane: int, careful: range = range(0)) -> int:
        """A stream opens; what is not begun yet of the ``careful`` batches is made carefully, for all streams.

        Raises ClosedError, or what made the producer end.
        """
        with self._lock:
            self._check()
            number = next(self._numbers)
            self._streams[number] = _Stream(lane, threading.Condition(self._lock), careful)
            if plan not in self._plans:
                self._plans[plan] = next(self._numbers)
                self._plan_of[self._plans[plan]] = plan
            self._window.attach(number, self._plans[plan], batches)
            return number

    def ask(self, number: int, num_batches: int) -> None:
        """A stream may send so many batches more."""
        with self._lock:
            self._window.ask(number, num_batches)
            self._tell()

    def take(self, number: int, timeout_s: float) -> tuple[Key, Made] | None:
        """Take the next batch of a stream, which asked for it, into its hands; None if it is not there in time.

        Raises ClosedError, or what made the producer end.
        """
        deadline_s = time.monotonic() + timeout_s
        with self._lock:
            stream = self._streams[number]
            while not self._window.may_take(number):
                self._check()
                left_s = deadline_s - time.monotonic()
                if stream.is_closed or left_s <= 0:
                    return None
                stream.changed.wait(left_s)
            key = self._window.take(number)
            self._tell()
            return key, self._made[key]

    def let_go(self, key: Key) -> None:
        """A stream has sent, or its client has copied, a batch that it took."""
        with self._lock:
            self._forget(self._window.let_go(key))
            self._tell()

    def wake(self, number: int) -> None:
        """Make a stream's :meth:`take` return, now and from now on, unless there is something to take."""
        with self._lock:
            stream = self._streams.get(number)
            if stream is not None:
                stream.is_closed = True
                stream.changed.notify_all()

    def waits_for(self, number: int) -> tuple[str, str]:
        """The stage in which the next batch of a stream is, and a text that says more."""
        with self._lock:
            key = self._window.next_of(number)
            ticket = self._tickets.get(key) if key is not None else None
        return self._maker.waits_for(ticket)

    def detach(self, number: int) -> None:
        """A stream is gone; what it has in its hands it lets go beside this."""
        with self._lock:
            del self._streams[number]
            self._forget(self._window.detach(number))
            self._forget_plans()
        self._maker.leave(number)
        with self._lock:
            self._tell()  # now that its chunks are gone there is room for others

    # -- called by whoever owns it ------------------------------------------------------------------------------------

    @property
    def num_streams(self) -> int:
        return len(self._streams)

    @property
    def failure(self) -> BaseException | None:
        """What made it end; None while it works."""
        return self._failure

    def allow(self, memory_bytes: int, read_bytes: int | None) -> None:
        """Change the bytes that it may use for batches, and for chunks; None is what suits the pipeline."""
        with self._lock:
            self._window.memory_bytes = memory_bytes
            self._read_bytes = default_read_bytes(self._feed) if read_bytes is None else read_bytes
            self._tell()

    def stats(self) -> ProducerStats:
        """What it did so far, and what it holds."""
        with self._lock:
            lanes = Counter(stream.lane for stream in self._streams.values())
            return ProducerStats(
                pipeline=self._fingerprint,
                lanes=tuple(sorted(lanes)),
                num_streams=len(self._streams),
                batches=self._sums["batches"],
                rows=self._sums["rows"],
                bad_samples=self._sums["bad"],
                storage_s=self._counters.read_s,
                decode_s=self._counters.decode_s,
                assemble_s=self._counters.assemble_s,
                bytes_read=self._counters.bytes_read,
                queued_bytes=self._window.held_bytes,
            )

    def close(self, deadline_s: float) -> None:
        """Stop, at the deadline (of the monotonic clock) at the latest; streams that are open get ClosedError."""
        self._end(ClosedError("the worker has stopped"))
        self._maker.close(deadline_s)
        self._thread.join(max(0.0, deadline_s - time.monotonic()))
        if self._prepared is not None:
            self._prepared.close()

    # -- called by the maker ------------------------------------------------------------------------------------------

    def on_ready(self, ticket: Ticket) -> None:
        """See :class:`stoker.engine.maker.Events`."""
        with self._lock:
            self._ready(ticket)

    def on_made(self, ticket: Ticket) -> None:
        """See :class:`stoker.engine.maker.Events`."""
        if isinstance(ticket.failure, DeviceLostError):
            self._on_device_lost(ticket.failure)
            return
        made = _made_of(ticket, self._arena)
        num_rows = 0 if ticket.batch is None else ticket.batch.num_rows
        ticket.batch = None
        with self._lock:
            key = self._keys.pop(ticket.number)
            del self._tickets[key]
            self._made[key] = made
            self._sums.update(batches=1, rows=num_rows, bad=len(made.bad))
            self._forget(self._window.made(key, made.encoded.num_bytes if made.encoded else 0))
            if self._window.stage(key) is not None:
                for number in self._window.users(key):
                    self._streams[number].changed.notify_all()
            self._tell()

    def on_crash(self, error: BaseException) -> None:
        """See :class:`stoker.engine.maker.Events`."""
        if not isinstance(error, ClosedError):
            _LOG.error("a producer of batches ended: %s", error, exc_info=error)
        self._end(error)

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._wait():
                while self._do_next():
                    pass
        except BaseException as error:  # noqa: BLE001  # the thread's outermost loop: the streams must hear of it
            self.on_crash(error)

    def _wait(self) -> bool:
        """Wait until something happened; False at the end."""
        with self._changed:
            while not self._has_changed and self._failure is None:
                self._changed.wait()
            self._has_changed = False
            return self._failure is None

    def _do_next(self) -> bool:
        """Do one thing that the window asks for; False if there is none."""
        with self._lock:
            if self._failure is not None:
                return False
            self._is_urgent = self._window.is_urgent()
            self._drop(self._window.to_drop())
            abandoned = self._give_up(self._window.abandoned())
            start = self._window.to_start()
            ticket = self._begin(start) if start is not None else None
            plan = self._window.to_plan() if ticket is None else None
        for given_up in abandoned:
            self._maker.drop(given_up)
        if ticket is not None:
            self._maker.start(ticket)
            return True
        return plan is not None and self._plan(plan)

    def _begin(self, start: ToStart) -> Ticket:
        self._drop(start.drop)
        self._window.started(start.key)
        ticket = self._tickets[start.key]
        assert ticket is not None, "a batch that is ready has a ticket"
        users = self._window.users(start.key)
        ticket.careful = any(start.key[1] in self._streams[number].careful for number in users)
        return ticket

    def _give_up(self, keys: list[Key]) -> list[Ticket]:
        """Forget batches that are ready, and that nobody will take; returns what the maker should drop."""
        self._window.dropped(keys)
        tickets = [ticket for key in keys if (ticket := self._tickets.pop(key)) is not None]
        for ticket in tickets:
            del self._keys[ticket.number]
        return tickets

    def _plan(self, plan: ToPlan) -> bool:
        """Have a batch's chunks read; False if there is no room for them."""
        with self._lock:
            described = self._plan_of.get(plan.key[0])
        if described is None:
            return True  # its stream is gone meanwhile
        if self._next_work is None or self._next_work[0] != (plan.key, plan.consumer):
            self._next_work = (plan.key, plan.consumer), self._work(described, plan)  # kept while it finds no room
        work = self._next_work[1]
        if not plan.is_due and self._maker.held_bytes + self._maker.bytes_to_read(work) > self._read_bytes:
            return False
        with self._lock:
            if self._window.stage(plan.key) is not None or plan.consumer not in self._streams:
                return True
            self._window.planned(plan.key)
            number = next(self._numbers)
            self._keys[number] = plan.key
            self._tickets[plan.key] = None
        self._next_work = None
        ticket = self._maker.plan(number, work)
        with self._lock:
            if plan.consumer not in self._streams:
                self._maker.leave(plan.consumer)
            if self._keys.get(number) == plan.key:
                self._tickets[plan.key] = ticket
                if not ticket.num_missing:
                    self._ready(ticket)
        return True

    def _work(self, plan: Plan, wanted: ToPlan) -> Work:
        order = self._orders.get(plan.epoch)
        if order is None:
            order = self._feed.order(plan.epoch)
            self._orders = {epoch: found for epoch, found in self._orders.items() if abs(epoch - plan.epoch) <= 1}
            self._orders[plan.epoch] = order
        planned = Steps(plan.lanes, 1, plan.tail).batch(wanted.key[1], 0)
        return replace(self._feed.work_of(order, planned), lane_index=wanted.consumer)

    # -- under the lock -----------------------------------------------------------------------------------------------

    def _ready(self, ticket: Ticket) -> None:
        """Note that chunks are here: told by the maker, by ``plan``, or by both."""
        key = self._keys.get(ticket.number)
        if key is not None and self._window.stage(key) is Stage.PLANNED:
            self._tickets[key] = ticket
            self._window.ready(key)
            self._tell()

    def _drop(self, keys: tuple[Key, ...]) -> None:
        self._window.dropped(keys)
        for key in keys:
            del self._made[key]

    def _forget(self, keys: list[Key]) -> None:
        for key in keys:
            del self._made[key]

    def _forget_plans(self) -> None:
        """Forget plans that nobody uses, but the latest: a stream that is opened again finds what was on its way."""
        on_its_way = {key[0] for key in self._tickets}
        for plan, number in list(self._plans.items())[:-MAX_UNUSED_PLANS]:
            if number not in on_its_way and not self._window.has_consumers(number):
                del self._plans[plan], self._plan_of[number]

    def _tell(self) -> None:
        self._has_changed = True
        self._changed.notify()

    def _check(self) -> None:
        if self._failure is not None:
            if isinstance(self._failure, StokerError):
                raise self._failure
            raise StokerError(f"a fault of the worker: {self._failure!r}") from self._failure

    def _end(self, error: BaseException) -> None:
        with self._lock:
            self._failure = self._failure or error
            self._has_changed = True
            self._changed.notify_all()
            for stream in self._streams.values():
                stream.changed.notify_all()


def _made_of(ticket: Ticket, arena: Arena | None) -> Made:
    encoded, failure = None, ticket.failure
    if failure is None:
        assert ticket.batch is not None, "a ticket that is made has a batch or a failure"
        encoded = encode(ticket.batch)
        if arena is not None:
            encoded = bring(encoded, arena)
    return Made(
        batch_index=ticket.work.batch_index,
        encoded=encoded,
        failure=failure,
        bad=tuple(ticket.bad),
        num_filtered=len(ticket.filtered),
        conversions=tuple(ticket.conversions.values()),
        ready_s=ticket.ready_s,
        killers=tuple(ticket.killers),
    )
