"""The consumers of a window: where each is in its sequence, and who comes through a batch."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

Key = tuple[int, int]
"""A batch: its plan, by the number that the owner gave to it, with its index in this plan."""


@dataclass(slots=True)
class Consumer:
    """An open stream's sequence. A *place* counts its batches from the first of all."""

    plan: int
    batches: range
    num_taken: int = 0
    has_asked: bool = False
    asks: deque[int] = field(default_factory=deque)
    """Of what is asked for and not taken: numbers in the order of asking over all consumers."""
    absent: int = 0
    """The first place that is not even planned."""
    known: set[int] = field(default_factory=set)
    """Indices of the batches before it that are at least planned."""
    ready: list[int] = field(default_factory=list)
    """A heap of the places whose batches wait to be started, and of such as were started or dropped meanwhile."""

    def key(self, place: int) -> Key:
        """The batch at a place."""
        return self.plan, self.batches[place]

    def place(self, batch_index: int) -> int:
        """Where a batch lies that is in its sequence."""
        return (batch_index - self.batches.start) // self.batches.step

    def will_take(self, batch_index: int) -> bool:
        """Whether it has a batch of its plan before it."""
        return batch_index in self.batches and self.place(batch_index) >= self.num_taken

    @property
    def num_left(self) -> int:
        return len(self.batches) - self.num_taken

    def asked_at(self, place: int) -> int | None:
        """When a batch before it was asked for, as a number; None if it was not yet."""
        ahead = place - self.num_taken
        return self.asks[ahead] if ahead < len(self.asks) else None

    def use(self, batch_index: int) -> int:
        """How far a batch before it is, in batches that it takes first: 0 for the one that it waits for."""
        ahead = self.place(batch_index) - self.num_taken
        return ahead if ahead < len(self.asks) else ahead + 1


class Consumers:
    """All consumers by number, found by number or by a batch that they have before them."""

    def __init__(self) -> None:
        self._all: dict[int, Consumer] = {}
        self._strides: defaultdict[int, Counter[int]] = defaultdict(Counter)
        self._through: defaultdict[tuple[int, int, int], set[int]] = defaultdict(set)

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, number: int) -> Consumer:
        return self._all[number]

    def add(self, number: int, consumer: Consumer) -> None:
        """A stream opened."""
        self._all[number] = consumer
        self._strides[consumer.plan][consumer.batches.step] += 1
        self._through[_line(consumer)].add(number)

    def remove(self, number: int) -> Consumer:
        """A stream is gone."""
        gone = self._all.pop(number)
        strides, line = self._strides[gone.plan], _line(gone)
        strides[gone.batches.step] -= 1
        if not strides[gone.batches.step]:
            del strides[gone.batches.step]
        if not strides:
            del self._strides[gone.plan]
        self._through[line].discard(number)
        if not self._through[line]:
            del self._through[line]
        return gone

    def has_plan(self, plan: int) -> bool:
        """Whether some stream takes batches of a plan."""
        return plan in self._strides

    def users(self, key: Key) -> Iterator[int]:
        """Those that have a batch before them."""
        plan, batch_index = key
        for stride in self._strides.get(plan, ()):
            for number in self._through.get((plan, stride, batch_index % stride), ()):
                if self._all[number].will_take(batch_index):
                    yield number


def _line(consumer: Consumer) -> tuple[int, int, int]:
    """Plan, stride and remainder: what all batches of a sequence have in common."""
    return consumer.plan, consumer.batches.step, consumer.batches.start % consumer.batches.step
