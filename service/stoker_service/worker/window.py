"""Decides which batches a producer reads, makes, keeps and drops.

Bookkeeping only: no threads, no clock, no I/O. Its owner calls it under a lock, tells what happened, and does what
the ``to_…`` methods say. Both cost O(log n) for each consumer that a batch concerns, not for each that there is: what
each consumer would have read, started and waited for is kept up to date as things happen, and ranked over all.

A consumer is an open stream: a sequence of batches of which it takes one after the other. It *asks* for the next
ones (the credit of its client); a batch that is asked for is made before one that is not, in the order of asking, over
all consumers. Beyond what is asked for, batches are made ahead, fewest for whom has most. A batch that several
consumers have before them is made once, and kept until all of them took it, or until the budget needs the room: then
the one whose next use is farthest is dropped, to be made again when its turn comes. So those who are close together
share, and who falls behind gets his own.

The batch that is *due*, a consumer's next, asked for and not made, is planned and started whatever the budgets say:
nobody can be kept waiting by what another one does not take. Where room is made, it is by what is used later than that
for which it is made; so nothing is dropped and made by turns.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from stoker_service import limits
from stoker_service.worker.consumers import Consumer, Consumers, Key
from stoker_service.worker.ranking import Rank, Ranking

MAX_AHEAD = limits.MAX_AHEAD
"""Batches that one consumer may have made or planned before it, however small they are."""

MAX_PLANNED = 16
"""Batches that are being read, or wait to be started, beyond those that are due; two for each consumer if that is more.

They need no memory but that of their chunks, which has its own budget. What is planned for a consumer that leaves was
read in vain."""

_DUE, _ASKED, _UNASKED = range(3)
"""What comes first in a rank: the smaller is the more urgent."""


class Stage(Enum):
    """How far a batch is: its chunks are asked for, are here, its rows are being made, or it is there."""

    PLANNED = "planned"
    READY = "ready"
    MAKING = "making"
    MADE = "made"


@dataclass(frozen=True, slots=True)
class ToPlan:
    """The batch to read next, for ``consumer``. One that is not due is read only if the chunks' budget has room."""

    key: Key
    consumer: int
    is_due: bool


@dataclass(frozen=True, slots=True)
class ToStart:
    """The batch to make next, once ``drop`` is dropped."""

    key: Key
    drop: tuple[Key, ...]


@dataclass(slots=True)
class _Entry:
    stage: Stage
    users: set[int]
    num_bytes: int = 0
    num_in_hand: int = 0


class Window:
    """The batches of one producer. Consumers are numbered; among equals the smaller number comes first.

    ``memory_bytes`` bounds those that are made, in the making, or in the hands of a stream; it may be changed, and what
    is too much then is dropped. ``max_making`` bounds those that are in the making though nobody asked for them, so
    that one that is asked for comes up soon.
    """

    def __init__(self, memory_bytes: int, max_making: int = 2) -> None:
        self.memory_bytes = memory_bytes
        self.held_bytes = 0
        """Bytes of batches made, in the making (as large as the largest so far), and in the hands of streams."""
        self._max_making = max_making
        self._entries: dict[Key, _Entry] = {}
        self._of_plan: defaultdict[int, set[int]] = defaultdict(set)  # indices of the entries
        self._consumers = Consumers()
        self._plannable: Ranking[int] = Ranking()  # consumers, by the first batch that each lacks
        self._startable: Ranking[int] = Ranking()  # consumers, by the first batch of each that is ready
        self._droppable: Ranking[Key] = Ranking()  # farthest first; a use may have come closer since it was ranked
        self._waiting: set[int] = set()
        self._abandoned: set[Key] = set()
        self._num_waiting = 0
        self._num_making = 0
        self._batch_bytes = 0
        self._num_asked = 0

    # -- what happened ------------------------------------------------------------------------------------------------

    def attach(self, consumer: int, plan: int, batches: range) -> None:
        """A stream opened: it will take ``batches`` of a plan, in this order."""
        opened = Consumer(plan, batches)
        self._consumers.add(consumer, opened)
        here = self._of_plan.get(plan, set())
        fewer, others = (batches, here) if len(batches) < len(here) else (here, batches)
        for batch_index in [one for one in fewer if one in others]:
            entry = self._entries[plan, batch_index]
            entry.users.add(consumer)
            opened.known.add(batch_index)
            if entry.stage is Stage.READY:
                heapq.heappush(opened.ready, opened.place(batch_index))
                self._abandoned.discard((plan, batch_index))
        self._rank(consumer)

    def detach(self, consumer: int) -> list[Key]:
        """A stream is gone. Returns what nobody needs any more and is forgotten now; :meth:`let_go` comes extra."""
        gone = self._consumers.remove(consumer)
        self._plannable.remove(consumer)
        self._startable.remove(consumer)
        self._waiting.discard(consumer)
        unused = []
        for batch_index in gone.known:
            key = gone.plan, batch_index
            entry = self._entries[key]
            entry.users.discard(consumer)
            self._rank_drop(key, entry)
            if not entry.users:
                unused.append(key)
                if entry.stage is Stage.READY:
                    self._abandoned.add(key)
        return self._forget(unused)

    def ask(self, consumer: int, num_batches: int) -> None:
        """A stream may send so many batches more; those beyond its end are not counted."""
        asking = self._consumers[consumer]
        for _ in range(min(num_batches, asking.num_left - len(asking.asks))):
            asking.asks.append(self._num_asked)
            asking.has_asked = True
            self._num_asked += 1
        self._rank(consumer)

    def planned(self, key: Key) -> None:
        """The chunks of a batch are asked for."""
        plan, batch_index = key
        entry = self._entries[key] = _Entry(Stage.PLANNED, set(self._consumers.users(key)))
        self._of_plan[plan].add(batch_index)
        self._num_waiting += 1
        for number in entry.users:
            self._consumers[number].known.add(batch_index)
            self._rank_plan(number)

    def ready(self, key: Key) -> None:
        """The chunks of a batch are here."""
        entry = self._entries[key]
        assert entry.stage is Stage.PLANNED, "chunks come once"
        entry.stage = Stage.READY
        if not entry.users:
            self._abandoned.add(key)
        for number in entry.users:
            user = self._consumers[number]
            heapq.heappush(user.ready, user.place(key[1]))
            self._rank_start(number)

    def started(self, key: Key) -> None:
        """A batch that was ready is being made."""
        entry = self._entries[key]
        assert entry.stage is Stage.READY, "a batch is made when its chunks are here"
        entry.stage, entry.num_bytes = Stage.MAKING, self._batch_bytes
        self._abandoned.discard(key)
        self._num_waiting -= 1
        self._num_making += 1
        self.held_bytes += entry.num_bytes
        for number in entry.users:
            self._rank_start(number)

    def made(self, key: Key, num_bytes: int) -> list[Key]:
        """A batch is there. Returns it if nobody needs it any more: then it is forgotten."""
        entry = self._entries[key]
        self.held_bytes += num_bytes - entry.num_bytes
        entry.stage, entry.num_bytes = Stage.MADE, num_bytes
        self._num_making -= 1
        self._batch_bytes = max(self._batch_bytes, num_bytes)
        self._rank_drop(key, entry)
        for number in entry.users:
            self._rank_wait(number)
        return [] if entry.users else self._forget([key])

    def take(self, consumer: int) -> Key:
        """A stream takes its next batch, which is made and asked for, in its hands, until :meth:`let_go`."""
        taking = self._consumers[consumer]
        key = taking.key(taking.num_taken)
        entry = self._entries[key]
        assert taking.asks, "only what is asked for is taken"
        assert entry.stage is Stage.MADE, "only what is there is taken"
        taking.num_taken += 1
        taking.asks.popleft()
        taking.known.discard(key[1])
        entry.users.discard(consumer)
        entry.num_in_hand += 1
        self._rank_drop(key, entry)
        self._rank(consumer)
        return key

    def let_go(self, key: Key) -> list[Key]:
        """A stream needs a batch that it took no longer. Returns it if nobody needs it: then it is forgotten."""
        entry = self._entries[key]
        entry.num_in_hand -= 1
        self._rank_drop(key, entry)
        return [] if entry.users else self._forget([key])

    def dropped(self, keys: Iterable[Key]) -> None:
        """Batches that were made, or were ready, are not there any more."""
        for key in keys:
            plan, batch_index = key
            entry = self._entries.pop(key)
            self._of_plan[plan].discard(batch_index)
            if not self._of_plan[plan]:
                del self._of_plan[plan]
            self.held_bytes -= entry.num_bytes
            self._droppable.remove(key)
            self._abandoned.discard(key)
            self._num_waiting -= entry.stage is Stage.READY
            for number in entry.users:
                user = self._consumers[number]
                user.known.discard(batch_index)
                user.absent = min(user.absent, user.place(batch_index))
                self._rank(number)

    # -- what to do ---------------------------------------------------------------------------------------------------

    def to_plan(self) -> ToPlan | None:
        """The batch whose chunks should be asked for next, if there is one."""
        first = self._plannable.first()
        if first is None:
            return None
        (urgency, *_), number = first
        may_plan = self._num_waiting < max(MAX_PLANNED, 2 * len(self._consumers))
        if urgency != _DUE and not may_plan:
            return None
        consumer = self._consumers[number]
        return ToPlan(consumer.key(consumer.absent), number, is_due=urgency == _DUE)

    def to_start(self) -> ToStart | None:
        """The batch whose rows should be made next, if there is one that may be made now."""
        first = self._startable.first()
        if first is None:
            return None
        (urgency, *_), number = first
        consumer = self._consumers[number]
        key = consumer.key(consumer.ready[0])
        if urgency != _DUE:
            is_enough = urgency == _UNASKED and self._num_making >= self._max_making
            if is_enough or not self._batch_bytes:
                return None
        fits, drop = self._room_for(self._batch_bytes, self._use(key))
        return ToStart(key, drop) if fits or urgency == _DUE else None

    def to_drop(self) -> tuple[Key, ...]:
        """What should be dropped since the budget shrank, or since batches became larger."""
        return self._room_for(0, 0)[1] if self.held_bytes > self.memory_bytes else ()

    def abandoned(self) -> list[Key]:
        """Batches that are ready to be started, and that nobody will take: they should be dropped."""
        return list(self._abandoned)

    # -- what is ------------------------------------------------------------------------------------------------------

    def next_of(self, consumer: int) -> Key | None:
        """The batch that a consumer takes next; None after its last."""
        asking = self._consumers[consumer]
        return asking.key(asking.num_taken) if asking.num_left else None

    def may_take(self, consumer: int) -> bool:
        """Whether the next batch of a consumer is asked for and there."""
        return bool(self._consumers[consumer].asks) and consumer not in self._waiting

    def num_asked(self, consumer: int) -> int:
        """Batches that a consumer asked for and has not taken."""
        return len(self._consumers[consumer].asks)

    def stage(self, key: Key) -> Stage | None:
        """How far a batch is; None if it is not even planned."""
        entry = self._entries.get(key)
        return None if entry is None else entry.stage

    def users(self, key: Key) -> frozenset[int]:
        """The consumers that have a batch before them."""
        return frozenset(self._entries[key].users)

    def has_consumers(self, plan: int) -> bool:
        """Whether some stream takes batches of a plan."""
        return self._consumers.has_plan(plan)

    def is_urgent(self) -> bool:
        """Whether some consumer waits: its next batch is asked for and not there."""
        return bool(self._waiting)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _rank(self, number: int) -> None:
        """Bring up to date what is known of a consumer."""
        self._rank_plan(number)
        self._rank_start(number)
        self._rank_wait(number)

    def _rank_plan(self, number: int) -> None:
        """Find the first batch that a consumer lacks. Nothing is done ahead for who has never asked."""
        one = self._consumers[number]
        while one.absent < len(one.batches) and one.key(one.absent) in self._entries:
            one.absent += 1
        ahead = one.absent - one.num_taken
        if one.has_asked and ahead < min(one.num_left, max(MAX_AHEAD, len(one.asks))):
            self._plannable.put(number, _urgency(one, one.absent, number))
        else:
            self._plannable.remove(number)

    def _rank_start(self, number: int) -> None:
        """Find the first batch before a consumer that is ready."""
        one = self._consumers[number]
        while one.ready and (one.ready[0] < one.num_taken or self.stage(one.key(one.ready[0])) is not Stage.READY):
            heapq.heappop(one.ready)
        if one.ready:
            self._startable.put(number, _urgency(one, one.ready[0], *one.key(one.ready[0])))
        else:
            self._startable.remove(number)

    def _rank_wait(self, number: int) -> None:
        """Note whether a consumer waits."""
        one = self._consumers[number]
        if one.asks and self.stage(one.key(one.num_taken)) is not Stage.MADE:
            self._waiting.add(number)
        else:
            self._waiting.discard(number)

    def _rank_drop(self, key: Key, entry: _Entry) -> None:
        """Rank what may be dropped anew: to be called when its next use may be farther than before."""
        is_here = entry.stage is Stage.MADE and entry.num_bytes and not entry.num_in_hand
        if is_here and entry.users:
            self._droppable.put(key, (-self._use(key), -key[0], -key[1]))
        else:
            self._droppable.remove(key)

    def _use(self, key: Key) -> int:
        """How far the next use of a batch is, in batches that are taken before: 0 for who waits for it."""
        return min(self._consumers[number].use(key[1]) for number in self._entries[key].users)

    def _room_for(self, num_bytes: int, later_than: int) -> tuple[bool, tuple[Key, ...]]:
        """Whether so many bytes more fit, if that is dropped whose next use is later."""
        too_much = self.held_bytes + num_bytes - self.memory_bytes
        drop: list[tuple[Rank, Key]] = []
        while too_much > 0 and (found := self._farthest(later_than)) is not None:
            drop.append(found)
            too_much -= self._entries[found[1]].num_bytes
            self._droppable.remove(found[1])
        for rank, key in drop:  # it is the owner who drops
            self._droppable.put(key, rank)
        return too_much <= 0, tuple(key for _, key in drop)

    def _farthest(self, later_than: int) -> tuple[Rank, Key] | None:
        """What may be dropped and is used last of all, if that is later than so far.

        Uses come closer each time that a consumer takes a batch; that is seen here, when one comes up as the farthest.
        """
        while (found := self._droppable.first()) is not None and -found[0][0] > later_than:
            rank, key = found
            use = self._use(key)
            if use == -rank[0]:
                return found
            self._droppable.put(key, (-use, *rank[1:]))
        return None

    def _forget(self, keys: list[Key]) -> list[Key]:
        """Forget those that are made and in nobody's hands; what is on its way stays until it is there."""
        gone = [key for key in keys if self._entries[key].stage is Stage.MADE and not self._entries[key].num_in_hand]
        self.dropped(gone)
        return gone


def _urgency(consumer: Consumer, place: int, *among_equals: int) -> Rank:
    """Smaller for what comes first: what is due, then what is asked for, since when, then what is closest."""
    asked_at = consumer.asked_at(place)
    if asked_at is None:
        return _UNASKED, place - consumer.num_taken, *among_equals
    return _DUE if place == consumer.num_taken else _ASKED, asked_at
