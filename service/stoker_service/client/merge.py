"""The order of one rank's batches over epochs and lanes: what to ask for now, what to hand out next."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from stoker.plan.resume import Position
from stoker.plan.steps import Steps

MAX_AHEAD: Final = 64
"""Steps beyond the first missing batch that a batch may be handed out, if order is not asked for; states list them."""

MAX_PER_LANE: Final = 16
"""Batches asked for on one lane, so that small ones do not pay a round trip each."""

MAX_HELD: Final = 256
"""Batches asked for or received in all, however small they are."""

EARLY: Final = 16
"""The next epoch's lanes are opened when fewer batches than this are not asked for in this one."""

_SIZES_KEPT: Final = 64


class Place(NamedTuple):
    """A batch of an epoch."""

    epoch: int
    batch_index: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """The batches start, start + stride, … below stop, all of one lane: what one stream can be asked for."""

    epoch: int
    lane: int
    start: int
    stop: int
    stride: int


@dataclass(frozen=True, slots=True)
class Leg:
    """What is left of one epoch for one rank: start, start + world_size, … below stop, but for those in ``taken``."""

    position: Position
    start: int
    stop: int
    world_size: int
    taken: frozenset[int]

    @property
    def epoch(self) -> int:
        return self.position.epoch

    @property
    def num_lanes(self) -> int:
        return self.position.lanes.num_lanes

    @property
    def num_left(self) -> int:
        return len(range(self.start, self.stop, self.world_size)) - len(self.taken)

    def places(self) -> Iterator[Place]:
        """The batches in the order of need."""
        for batch_index in range(self.start, self.stop, self.world_size):
            if batch_index not in self.taken:
                yield Place(self.epoch, batch_index)

    def stretch(self, batch_index: int) -> Stretch:
        """The longest stretch from a batch on that holds no batch already taken."""
        stride = math.lcm(self.num_lanes, self.world_size)
        bars = [taken for taken in self.taken if taken > batch_index and (taken - batch_index) % stride == 0]
        return Stretch(self.epoch, batch_index % self.num_lanes, batch_index, min(bars, default=self.stop), stride)

    def first_stretches(self) -> list[Stretch]:
        """For each lane that the rank has batches of, the stretch it begins with."""
        stride = math.lcm(self.num_lanes, self.world_size)
        found = []
        for first in range(self.start, min(self.stop, self.start + stride), self.world_size):
            index = next((index for index in range(first, self.stop, stride) if index not in self.taken), None)
            if index is not None:
                found.append(self.stretch(index))
        return found


class Dealer(Protocol):
    """What :class:`stoker.engine.feed.Deal` tells of epochs."""

    def start(self, epoch: int) -> Position: ...

    def steps(self, position: Position) -> Steps: ...

    def num_left(self, position: Position) -> int: ...


def legs(deal: Dealer, rank: int, position: Position) -> Iterator[Leg]:
    """What is left of the position's epoch, then the epochs after it; ends where an epoch has no batch."""
    while True:
        steps = deal.steps(position)
        start = position.num_consumed + rank
        stop = start + steps.num_steps * steps.world_size
        leg = Leg(position, start, stop, steps.world_size, frozenset(position.ahead))
        if leg.num_left:
            yield leg
        position = deal.start(position.epoch + 1)
        if deal.num_left(position) == 0:
            return


@dataclass(slots=True)
class _Slot:
    """A batch that is asked for (``num_bytes`` is guessed, or told), here, or handed out before one in front of it."""

    place: Place
    lane: int
    num_bytes: int
    is_here: bool = False
    is_out: bool = False


class Merge:
    """Decides what is asked for and what is handed out; holds no batch itself.

    Pure; not for several threads at once. Batches are asked for in the order of need, as long as what is asked for
    and not handed out fits ``prefetch_bytes``; the first missing one is asked for whatever its size. So nothing
    can wait for a batch that is not asked for.
    """

    def __init__(self, upcoming: Iterator[Leg], *, prefetch_bytes: int, in_order: bool) -> None:
        self._course = _Course(upcoming)
        self._prefetch_bytes = prefetch_bytes
        self._in_order = in_order
        self._window: deque[_Slot] = deque()  # from the first missing batch to the last one asked for
        self._by_place: dict[Place, _Slot] = {}
        self._per_lane: Counter[tuple[int, int]] = Counter()
        self._held_bytes = 0
        self._sizes: deque[int] = deque(maxlen=_SIZES_KEPT)

    @property
    def held_bytes(self) -> int:
        """Bytes asked for or here, and not handed out."""
        return self._held_bytes

    @property
    def num_held(self) -> int:
        """Batches asked for or here, and not handed out."""
        return len(self._by_place)

    @property
    def first_missing(self) -> Place | None:
        """The batch that is needed first; None if there is no batch at all any more."""
        return self._window[0].place if self._window else self._course.place

    def is_here(self, place: Place) -> bool:
        """Whether a batch has arrived and is not handed out."""
        return place in self._by_place and self._by_place[place].is_here

    def legs_to_open(self) -> list[Leg]:
        """The epochs whose lanes should be opened now; each is told once."""
        first = self.first_missing
        if first is None:
            return []
        if self._course.num_unasked < EARLY:
            self._course.peek()
        return self._course.told(first.epoch + 1)

    def ask(self) -> list[Place]:
        """Mark what may be asked for now as asked for, and return it in the order of need."""
        asked = []
        while (place := self._course.place) is not None and self._may_ask(place):
            asked.append(place)
            self._append(place)
            self._course.step()
        return asked

    def begun(self, place: Place, num_bytes: int) -> None:
        """The size of a batch that is asked for is known."""
        slot = self._by_place[place]
        self._held_bytes += num_bytes - slot.num_bytes
        slot.num_bytes = num_bytes
        self._sizes.append(num_bytes)

    def arrived(self, place: Place) -> None:
        """A batch that was asked for is here, or will never be: it can be handed out, or its error raised."""
        slot = self._by_place[place]
        assert not slot.is_here, f"{place} came twice"
        slot.is_here = True
        lane = (place.epoch, slot.lane)
        self._per_lane[lane] -= 1
        if not self._per_lane[lane]:
            del self._per_lane[lane]  # epochs go by

    def take(self) -> Place | None:
        """The batch to hand out now, which is handed out with this; None if it is not here."""
        slot = self._next_out()
        if slot is None:
            return None
        slot.is_out = True
        self._held_bytes -= slot.num_bytes
        del self._by_place[slot.place]
        while self._window and self._window[0].is_out:
            self._window.popleft()
        return slot.place

    def _next_out(self) -> _Slot | None:
        if not self._window:
            return None
        first = self._window[0]
        if self._in_order or first.is_here:
            return first if first.is_here else None
        most = first.place.batch_index + MAX_AHEAD * self._course.world_size
        for slot in self._window:
            if slot.place.epoch != first.place.epoch or slot.place.batch_index > most:
                return None
            if slot.is_here and not slot.is_out:
                return slot
        return None

    def _may_ask(self, place: Place) -> bool:
        if not self._window:
            return True
        if place.epoch > self._window[0].place.epoch + 1 or len(self._window) >= MAX_HELD:
            return False
        if not self._sizes or self._per_lane[place.epoch, self._course.lane] >= MAX_PER_LANE:
            return False
        return self._held_bytes + max(self._sizes) <= self._prefetch_bytes

    def _append(self, place: Place) -> None:
        slot = _Slot(place, self._course.lane, max(self._sizes, default=0))
        self._window.append(slot)
        self._by_place[place] = slot
        self._per_lane[place.epoch, slot.lane] += 1
        self._held_bytes += slot.num_bytes


class _Course:
    """The batches in the order of need, one at a time, with the leg that the next of them is of."""

    def __init__(self, upcoming: Iterator[Leg]) -> None:
        self._upcoming = upcoming
        self._coming: Leg | None = None
        self._untold: list[Leg] = []
        self._places: Iterator[Place] = iter(())
        self.leg: Leg | None = None
        self.place: Place | None = None
        self.num_unasked = 0
        self.world_size = 1
        self._enter()

    @property
    def lane(self) -> int:
        """The lane of the next batch."""
        assert self.leg is not None, "there is no next batch"
        assert self.place is not None, "there is no next batch"
        return self.place.batch_index % self.leg.num_lanes

    def peek(self) -> None:
        """Look at the leg after this one."""
        if self._coming is None and (coming := next(self._upcoming, None)) is not None:
            self._coming = coming
            self._untold.append(coming)

    def told(self, last_epoch: int) -> list[Leg]:
        """Return the legs seen so far, up to an epoch, each once."""
        found = [leg for leg in self._untold if leg.epoch <= last_epoch]
        del self._untold[: len(found)]
        return found

    def step(self) -> None:
        """Go on to the next batch, into the next epoch where this one has no more."""
        self.num_unasked -= 1
        self.place = next(self._places, None)
        if self.place is None:
            self._enter()

    def _enter(self) -> None:
        self.peek()
        leg, self._coming = self._coming, None
        if leg is not None:
            self.leg, self.num_unasked, self.world_size = leg, leg.num_left, leg.world_size
            self._places = leg.places()
            self.place = next(self._places, None)
