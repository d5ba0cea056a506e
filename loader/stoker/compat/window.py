"""Which worker gets the next batch, and which batch is handed out next."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stoker.compat.crew import Task


@dataclass(slots=True)
class _Entry:
    task: Task
    worker_index: int
    num_deaths: int = 0
    made: list[Any] = field(default_factory=list)  # empty, or the one result


class Window:
    """The batches that were asked for and not handed out yet: ``max_tasks`` at most. Pure.

    ``deals_in_turn``: batch after batch goes to worker after worker, as torch deals them, so that each worker makes the
    same batches in every run. Otherwise a batch goes to the worker that has the fewest in hand.

    A worker whose data end (:meth:`ended`) gets nothing more, and what it had not made is taken out: torch's rule for
    iterable datasets of different lengths.
    """

    def __init__(
        self,
        num_workers: int,
        max_tasks: int,
        *,
        in_order: bool,
        deals_in_turn: bool,
        first_worker: int = 0,
    ) -> None:
        self._num_workers = num_workers
        self._max_tasks = max_tasks
        self._in_order = in_order
        self._deals_in_turn = deals_in_turn
        self._entries: dict[int, _Entry] = {}
        self._is_active = [True] * num_workers
        self._next_turn = first_worker

    @property
    def has_room(self) -> bool:
        """Whether one more batch may be asked for: there is a worker, and not too much is under way."""
        return len(self._entries) < self._max_tasks and any(self._is_active)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked for that has not been handed out."""
        return not self._entries

    def ask(self, task: Task) -> int:
        """Take up the next batch; returns the worker that shall make it."""
        worker_index = self._choose()
        self._entries[task.batch_index] = _Entry(task, worker_index)
        return worker_index

    def made(self, batch_index: int, result: Any) -> bool:
        """A batch came; False if nobody waits for it any more."""
        entry = self._entries.get(batch_index)
        if entry is None or entry.made:
            return False
        entry.made.append(result)
        return True

    def take(self) -> Any | None:
        """Hand out a batch: the first that was asked for, or, if order is not asked for, any that is there."""
        for batch_index, entry in self._entries.items():
            if entry.made:
                del self._entries[batch_index]
                return entry.made[0]
            if self._in_order:
                return None
        return None

    def ended(self, worker_index: int) -> None:
        """A worker has no more data."""
        self._is_active[worker_index] = False
        self._entries = {
            index: entry for index, entry in self._entries.items() if entry.worker_index != worker_index or entry.made
        }

    def only(self, worker_index: int) -> None:
        """Give everything that is not made to one worker, and it alone from now on."""
        self._is_active = [index == worker_index for index in range(self._num_workers)]
        for entry in self._unmade():
            entry.worker_index = worker_index

    def to_move(self) -> tuple[int, int, Task] | None:
        """Who could give which batch to whom, since that one has nothing in hand: the last of the busiest's.

        None if there is nothing to give, or batches are dealt in turn.
        """
        in_hand: dict[int, list[Task]] = {index: [] for index in range(self._num_workers) if self._is_active[index]}
        if self._deals_in_turn or not in_hand:
            return None
        for entry in self._unmade():
            in_hand.setdefault(entry.worker_index, []).append(entry.task)
        giver = max(in_hand, key=lambda index: len(in_hand[index]))
        taker = min(in_hand, key=lambda index: len(in_hand[index]))
        return (giver, taker, in_hand[giver][-1]) if not in_hand[taker] and len(in_hand[giver]) > 1 else None

    def move(self, task: Task, worker_index: int) -> None:
        """Another worker makes it."""
        self._entries[task.batch_index].worker_index = worker_index

    def lost(self, worker_index: int) -> int:
        """A worker died: counts it against the batch that it had begun; returns how often that batch met this."""
        for entry in self._unmade():
            if entry.worker_index == worker_index:
                entry.num_deaths += 1
                return entry.num_deaths
        return 0

    def unmade(self) -> list[tuple[int, Task]]:
        """Who makes what, of all that is not made, in the order in which it was asked for."""
        return [(entry.worker_index, entry.task) for entry in self._unmade()]

    def unmade_of(self, worker_index: int) -> list[tuple[int, Task]]:
        """What one worker has still to make."""
        return [(index, task) for index, task in self.unmade() if index == worker_index]

    def waits_for(self) -> tuple[int, Task] | None:
        """Who makes the batch that is to be handed out next, and which it is; None if there is none."""
        return next(iter(self.unmade()), None)

    def _unmade(self) -> list[_Entry]:
        return [entry for entry in self._entries.values() if not entry.made]

    def _choose(self) -> int:
        in_hand = [0] * self._num_workers
        if not self._deals_in_turn:
            for entry in self._unmade():
                in_hand[entry.worker_index] += 1
        turns = [(self._next_turn + i) % self._num_workers for i in range(self._num_workers)]
        chosen = min((index for index in turns if self._is_active[index]), key=lambda index: in_hand[index])
        self._next_turn = (chosen + 1) % self._num_workers
        return chosen
