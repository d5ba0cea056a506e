"""How far one iteration is consumed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stoker.compat.crew import Task
from stoker.compat.positions import TrackedSampler
from stoker.compat.state import Saved, WorkerStates, to_state

if TYPE_CHECKING:
    from stoker.compat.loader import DataLoader


class Progress:
    """One iteration's sampler, and what of it was handed out; made before torch's iterator begins.

    ``saved`` is the state that the iteration goes on from. :meth:`begun` is called when torch has called the sampler's
    ``iter()``; what depends on whether there is something to go on from is known from then on.
    """

    def __init__(self, loader: DataLoader[Any], saved: Saved | None) -> None:
        self._saved = saved
        self._num_workers = max(1, loader.num_workers)
        self._is_iterable = loader._is_iterable
        self.sampler = TrackedSampler(loader._index_sampler, loader.generator, saved.position if saved else None)
        self.worker_states: tuple[Any, ...] = ()
        self.next_worker = 0
        self.is_rest = False
        self._num_asked = self._num_taken = 0
        self._asked: dict[int, int] = {}
        self._base_seed: int | None = None
        self._is_over = False
        self._state_here: Callable[[], Any] | None = None

    def begun(self, base_seed: int) -> int:
        """Take the seed that torch has drawn; returns the iteration's, which is the saved one if it goes on."""
        if self.sampler.resumed and self._saved is not None:
            base_seed = base_seed if self._saved.base_seed is None else self._saved.base_seed
            if self._saved.workers is not None:
                self.is_rest = True
                self.worker_states = self._saved.workers.states
                self.next_worker = self._saved.workers.next_worker
                self._num_taken = self._saved.workers.num_taken
        self._states = list(self.worker_states) or [None] * self._num_workers
        self._base_seed = base_seed
        return base_seed

    def begin_anew(self) -> None:
        """What was left of the saved epoch of an iterable dataset turned out to be nothing: a whole epoch follows."""
        self.is_rest = False
        self.worker_states, self.next_worker, self._num_taken = (), 0, 0
        self._states = [None] * self._num_workers

    def next_task(self, keys: Any) -> Task:
        """Name the batch of the next keys, by its place in the epoch."""
        task = Task(self.sampler.index_of(self._num_asked), keys)
        self._asked[task.batch_index] = self._num_asked
        self._num_asked += 1
        return task

    def state_is(self, state_here: Callable[[], Any]) -> None:
        """Without workers the state is asked for when it is wanted."""
        self._state_here = state_here

    def took(self, batch_index: int, worker_index: int = 0, state: Any = None) -> None:
        """A batch is handed out, with the state of its worker after it."""
        self.sampler.taken(self._asked.pop(batch_index))
        self.is_rest = False
        self._num_taken += 1
        self._states[worker_index] = state
        self.next_worker = (worker_index + 1) % self._num_workers

    def ended(self) -> None:
        """The user was told that the iteration is over."""
        self._is_over = True

    def state(self, loader: DataLoader[Any]) -> dict[str, Any]:
        """See :meth:`stoker.compat.loader.DataLoader.state_dict`."""
        workers = None
        if self._is_iterable:
            if self._state_here is not None:
                self._states[0] = copy.deepcopy(self._state_here())
            workers = WorkerStates(
                tuple(self._states), (self._is_over,) * self._num_workers, self.next_worker, self._num_taken
            )
        return to_state(loader, self.sampler.position(), self._base_seed, workers)
