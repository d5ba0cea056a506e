"""The window of a worker as simply as it can be said: the model of :mod:`stoker_service.worker.window`.

It looks at all consumers and all batches at each step.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from stoker_service.worker.consumers import Key
from stoker_service.worker.window import MAX_AHEAD, MAX_PLANNED, Stage, ToPlan, ToStart

_NEVER = 1 << 62


@dataclass(slots=True)
class _Entry:
    stage: Stage
    users: set[int]
    num_bytes: int = 0
    num_in_hand: int = 0


@dataclass(slots=True)
class _Consumer:
    plan: int
    batches: range
    num_taken: int = 0
    num_planned: int = 0
    """All that come before this one in its sequence are planned, or were taken."""
    has_asked: bool = False
    asks: deque[int] = field(default_factory=deque)

    def key(self, ahead: int) -> Key:
        """The batch ``ahead`` places after the next one."""
        return self.plan, self.batches[self.num_taken + ahead]

    @property
    def num_left(self) -> int:
        return len(self.batches) - self.num_taken

    def ahead_of(self, batch_index: int) -> int:
        """How many places after the next one a batch that it has not taken lies."""
        return (batch_index - self.batches.start) // self.batches.step - self.num_taken


class SimpleWindow:
    """The batches of one producer.

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
        self._consumers: dict[int, _Consumer] = {}
        self._by_plan: dict[int, set[int]] = defaultdict(set)
        self._ready: set[Key] = set()
        self._num_waiting = 0
        self._num_making = 0
        self._batch_bytes = 0
        self._num_asked = 0

    # -- what happened ------------------------------------------------------------------------------------------------

    def attach(self, consumer: int, plan: int, batches: range) -> None:
        """A stream opened: it will take ``batches`` of a plan, in this order."""
        self._consumers[consumer] = _Consumer(plan, batches)
        self._by_plan[plan].add(consumer)
        for (of_plan, batch_index), entry in self._entries.items():
            if of_plan == plan and batch_index in batches:
                entry.users.add(consumer)

    def detach(self, consumer: int) -> list[Key]:
        """A stream is gone. Returns what nobody needs any more and is forgotten now; :meth:`let_go` comes extra."""
        gone = self._consumers.pop(consumer)
        of_plan = self._by_plan[gone.plan]
        of_plan.discard(consumer)
        if not of_plan:
            del self._by_plan[gone.plan]
        for entry in self._entries.values():
            entry.users.discard(consumer)
        return self._forget([key for key, entry in self._entries.items() if not entry.users])

    def ask(self, consumer: int, num_batches: int) -> None:
        """A stream may send so many batches more; those beyond its end are not counted."""
        asking = self._consumers[consumer]
        for _ in range(min(num_batches, asking.num_left - len(asking.asks))):
            asking.asks.append(self._num_asked)
            asking.has_asked = True
            self._num_asked += 1

    def planned(self, key: Key) -> None:
        """The chunks of a batch are asked for."""
        plan, batch_index = key
        users = {number for number in self._by_plan.get(plan, ()) if self._will_take(number, batch_index)}
        self._entries[key] = _Entry(Stage.PLANNED, users)
        self._num_waiting += 1

    def ready(self, key: Key) -> None:
        """The chunks of a batch are here."""
        entry = self._entries[key]
        assert entry.stage is Stage.PLANNED, "chunks come once"
        entry.stage = Stage.READY
        self._ready.add(key)

    def started(self, key: Key) -> None:
        """A batch that was ready is being made."""
        entry = self._entries[key]
        assert entry.stage is Stage.READY, "a batch is made when its chunks are here"
        entry.stage, entry.num_bytes = Stage.MAKING, self._batch_bytes
        self._ready.remove(key)
        self._num_waiting -= 1
        self._num_making += 1
        self.held_bytes += entry.num_bytes

    def made(self, key: Key, num_bytes: int) -> list[Key]:
        """A batch is there. Returns it if nobody needs it any more: then it is forgotten."""
        entry = self._entries[key]
        self.held_bytes += num_bytes - entry.num_bytes
        entry.stage, entry.num_bytes = Stage.MADE, num_bytes
        self._num_making -= 1
        self._batch_bytes = max(self._batch_bytes, num_bytes)
        return [] if entry.users else self._forget([key])

    def take(self, consumer: int) -> Key:
        """A stream takes its next batch, which is made and asked for, in its hands, until :meth:`let_go`."""
        taking = self._consumers[consumer]
        key = taking.key(0)
        entry = self._entries[key]
        assert taking.asks, "only what is asked for is taken"
        assert entry.stage is Stage.MADE, "only what is there is taken"
        taking.num_taken += 1
        taking.asks.popleft()
        entry.users.discard(consumer)
        entry.num_in_hand += 1
        return key

    def let_go(self, key: Key) -> list[Key]:
        """A stream needs a batch that it took no longer. Returns it if nobody needs it: then it is forgotten."""
        entry = self._entries[key]
        entry.num_in_hand -= 1
        return [] if entry.users else self._forget([key])

    def dropped(self, keys: Iterable[Key]) -> None:
        """Batches that were made, or were ready, are not there any more."""
        for key in keys:
            entry = self._entries.pop(key)
            self.held_bytes -= entry.num_bytes
            if entry.stage is Stage.READY:
                self._ready.remove(key)
                self._num_waiting -= 1
            for number in entry.users:
                user = self._consumers[number]
                user.num_planned = min(user.num_planned, user.num_taken + user.ahead_of(key[1]))

    # -- what to do ---------------------------------------------------------------------------------------------------

    def to_plan(self) -> ToPlan | None:
        """The batch whose chunks should be asked for next, if there is one."""
        may_plan = self._num_waiting < max(MAX_PLANNED, 2 * len(self._consumers))
        best: tuple[bool, bool, int] | None = None
        found: ToPlan | None = None
        for number, consumer in self._consumers.items():
            absent = self._first_absent(consumer)
            is_asked = absent < len(consumer.asks)
            is_due = is_asked and absent == 0
            if not is_due and (not may_plan or not self._may_plan(consumer, absent)):
                continue
            urgency = (not is_due, not is_asked, consumer.asks[absent] if is_asked else absent)
            if best is None or urgency < best:
                best, found = urgency, ToPlan(consumer.key(absent), number, is_due)
        return found

    def to_start(self) -> ToStart | None:
        """The batch whose rows should be made next, if there is one that may be made now."""
        wanted = [(self._urgency(key), key) for key in self._ready if self._entries[key].users]
        if not wanted:
            return None
        (is_later, is_unasked, _, use), key = min(wanted)
        if not is_later:
            return ToStart(key, self._room_for(self._batch_bytes, use)[1])
        if not self._batch_bytes or (is_unasked and self._num_making >= self._max_making):
            return None
        fits, drop = self._room_for(self._batch_bytes, use)
        return ToStart(key, drop) if fits else None

    def to_drop(self) -> tuple[Key, ...]:
        """What should be dropped since the budget shrank, or since batches became larger."""
        return self._room_for(0, 0)[1] if self.held_bytes > self.memory_bytes else ()

    def abandoned(self) -> list[Key]:
        """Batches that are ready to be started, and that nobody will take."""
        return [key for key in self._ready if not self._entries[key].users]

    # -- what is ------------------------------------------------------------------------------------------------------

    def next_of(self, consumer: int) -> Key | None:
        """The batch that a consumer takes next; None after its last."""
        asking = self._consumers[consumer]
        return asking.key(0) if asking.num_left else None

    def may_take(self, consumer: int) -> bool:
        """Whether the next batch of a consumer is asked for and there."""
        asking = self._consumers[consumer]
        return bool(asking.asks) and self.stage(asking.key(0)) is Stage.MADE

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
        return plan in self._by_plan

    def is_urgent(self) -> bool:
        """Whether some consumer waits: its next batch is asked for and not there."""
        return any(bool(one.asks) and self.stage(one.key(0)) is not Stage.MADE for one in self._consumers.values())

    # -- inside -------------------------------------------------------------------------------------------------------

    def _will_take(self, number: int, batch_index: int) -> bool:
        consumer = self._consumers[number]
        return batch_index in consumer.batches and consumer.ahead_of(batch_index) >= 0

    def _first_absent(self, consumer: _Consumer) -> int:
        """How many places ahead the first batch lies that is not planned."""
        at = max(consumer.num_planned, consumer.num_taken)
        while at < len(consumer.batches) and (consumer.plan, consumer.batches[at]) in self._entries:
            at += 1
        consumer.num_planned = at
        return at - consumer.num_taken

    @staticmethod
    def _may_plan(consumer: _Consumer, absent: int) -> bool:
        """Whether a batch that is not due may be planned: nothing is done for who has never asked."""
        return consumer.has_asked and absent < min(consumer.num_left, max(MAX_AHEAD, len(consumer.asks)))

    def _urgency(self, key: Key) -> tuple[bool, bool, int, int]:
        """Smaller for what comes first: whether it is not due, not asked for, since when or how far ahead; its use."""
        first, use = (True, True, _NEVER), _NEVER
        for number in self._entries[key].users:
            consumer = self._consumers[number]
            ahead = consumer.ahead_of(key[1])
            if ahead < len(consumer.asks):
                first, use = min(first, (ahead > 0, False, consumer.asks[ahead])), min(use, ahead)
            else:
                first, use = min(first, (True, True, ahead)), min(use, ahead + 1)
        return *first, use

    def _use(self, key: Key) -> int:
        """How far the next use of a batch is, in batches that are taken before: 0 for who waits for it."""
        return min(self._use_by(self._consumers[number], key) for number in self._entries[key].users)

    @staticmethod
    def _use_by(consumer: _Consumer, key: Key) -> int:
        ahead = consumer.ahead_of(key[1])
        return ahead if ahead < len(consumer.asks) else ahead + 1

    def _room_for(self, num_bytes: int, later_than: int) -> tuple[bool, tuple[Key, ...]]:
        """Whether so many bytes more fit, if that is dropped whose next use is later."""
        too_much = self.held_bytes + num_bytes - self.memory_bytes
        drop = []
        for next_use, key in sorted(self._droppable(), reverse=True) if too_much > 0 else ():
            if too_much <= 0 or next_use <= later_than:
                break
            drop.append(key)
            too_much -= self._entries[key].num_bytes
        return too_much <= 0, tuple(drop)

    def _droppable(self) -> Iterator[tuple[int, Key]]:
        """What is made and in nobody's hands, with how far its next use is."""
        for key, entry in self._entries.items():
            if entry.stage is Stage.MADE and entry.num_bytes and not entry.num_in_hand:
                yield self._use(key), key

    def _forget(self, keys: list[Key]) -> list[Key]:
        """Forget those that are made and in nobody's hands; what is on its way stays until it is there."""
        gone = [key for key in keys if self._entries[key].stage is Stage.MADE and not self._entries[key].num_in_hand]
        self.dropped(gone)
        return gone
