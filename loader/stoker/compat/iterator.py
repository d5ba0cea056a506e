"""An iteration whose samples are fetched by workers."""

from __future__ import annotations

import logging
import weakref
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from stoker.compat.crew import Crew, Ended, Event, Failed, Lost, Made, Task
from stoker.compat.iteration import Iteration
from stoker.compat.patience import Patience
from stoker.compat.pinning import Pinner
from stoker.compat.window import Window
from stoker.errors import SpecError, WorkerError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from stoker.compat.loader import DataLoader

MAX_DEATHS: Final = 2
"""Workers that one batch may cost."""

_LOG: Final = logging.getLogger("stoker")


class WorkerIterator(Iteration):
    """Hands out what a crew makes, each batch once.

    Batches of iterable datasets go to the worker whose turn it is, as torch deals them. When the iteration ends or is
    forgotten, its crew goes back to the loader for the next one.
    """

    def __init__(self, loader: DataLoader[Any], crew: Crew) -> None:
        self._crew = crew
        self._give_back = weakref.finalize(self, deque.append, loader._idle, crew)
        self._give_back.atexit = False
        super().__init__(loader)
        self._pinner = Pinner(self._pin_memory_device) if self._pin_memory else None
        self._reset(loader, first_iter=True)

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        """Begin an iteration; called by torch's ``__iter__`` for those after the first with ``persistent_workers``."""
        if not first_iter:
            self._progress = loader._begin_progress()
            self._left_s = None
        super()._reset(loader, first_iter)
        self._base_seed = self._begun(loader)
        self._is_iterable = loader._is_iterable
        self._loader = weakref.ref(loader)
        self._begin(loader, goes_on=not first_iter)

    def _begin(self, loader: DataLoader[Any], *, goes_on: bool) -> None:
        job = loader._job(int(self._base_seed), self._progress.worker_states, goes_on=goes_on)
        self._window = Window(
            self._num_workers,
            max(1, loader.prefetch_factor or 1) * self._num_workers,
            in_order=loader.in_order,
            deals_in_turn=job.is_iterable or (loader.in_order and job.seeding == "worker"),
            first_worker=self._progress.next_worker,
        )
        self._heard_states = dict(enumerate(job.states))
        self._knows_workers: bool | None = loader._knows_workers if job.is_iterable else True
        if self._knows_workers is False:
            self._window.only(0)
        self._unsent: list[tuple[int, Task]] = []
        self._has_keys = True
        self._failure: BaseException | None = None
        self._crew.begin(job)
        self._fill()

    def _next_data(self) -> Any:
        if self._failure is not None:
            raise self._failure
        while (event := self._window.take()) is None:
            if self._window.is_empty and not self._is_begun_anew():
                self._progress.ended()
                self._end()
                raise StopIteration
            self._hear(self._wait())
        self._fill()
        if isinstance(event, Failed):
            self._progress.took(event.batch_index, event.worker_index, self._heard_states.get(event.worker_index))
            raise event.error
        self._progress.took(event.batch_index, event.worker_index, event.state)
        if self._pinner is None:
            return event.value
        return self._pinned(event.value)

    def _pinned(self, coming: Future[Any]) -> Any:
        """Begin to pin what has come meanwhile, and wait for this one."""
        while (event := self._crew.receive(0)) is not None:
            self._hear(event)
        return coming.result()

    def _fill(self) -> None:
        """Ask for more batches, one key after another."""
        while self._has_keys and self._window.has_room:
            try:
                keys = next(self._sampler_iter)
            except StopIteration:
                self._has_keys = False
                return
            task = self._progress.next_task(keys)
            is_first = self._window.is_empty
            worker_index = self._window.ask(task)
            if self._knows_workers is None and not is_first:
                self._unsent.append((worker_index, task))
            else:
                self._crew.submit(worker_index, task)

    def _wait(self) -> Event:
        """Wait for the next event. Raises WorkerStallError."""
        self._spread()
        waiting = self._window.waits_for()
        assert waiting is not None, "nothing is waited for"
        worker_index, task = waiting
        patience = Patience(
            self._timeout,
            lambda: self._crew.is_active(worker_index),
            lambda: f"batch {task.batch_index} is waited for from {self._crew.waits_for(worker_index)}",
        )
        while True:
            event = self._crew.receive(patience.next_s())
            if event is not None:
                return event

    def _spread(self) -> None:
        """Let workers that have nothing to do take over what lies behind a slow batch."""
        while (move := self._window.to_move()) is not None:
            giver, taker, task = move
            if not self._crew.withdraw(giver, task):
                return
            self._window.move(task, taker)
            self._crew.submit(taker, task)

    def _hear(self, event: Event) -> None:
        match event:
            case Made():
                self._decide(event.knows_workers)
                self._heard_states[event.worker_index] = event.state
                self._window.made(event.batch_index, self._with_pin(event))
            case Failed():
                self._decide(True)
                self._window.made(event.batch_index, event)
            case Ended():
                self._decide(event.knows_workers)
                self._window.ended(event.worker_index)
                self._fill()
            case Lost():
                self._replace(event)

    def _with_pin(self, made: Made) -> Made:
        return made if self._pinner is None else replace(made, value=self._pinner.pin(made.value))

    def _decide(self, knows_workers: bool) -> None:
        """Whether an iterable dataset deals its samples out itself shows when the first batch is there.

        One that never asks for ``get_worker_info()`` would give all samples once for each worker.
        """
        if self._knows_workers is None:
            self._knows_workers = knows_workers
            if (loader := self._loader()) is not None:
                loader._knows_workers = knows_workers
            if not knows_workers:
                _LOG.warning(
                    "the dataset does not ask torch.utils.data.get_worker_info(), so each of %d workers would give "
                    "every sample: one worker reads it; replicas='torch' lets all of them",
                    self._num_workers,
                )
            unsent, self._unsent = self._unsent, []
            if not knows_workers:
                self._window.only(0)
            for worker_index, task in unsent:
                self._crew.submit(worker_index if knows_workers else 0, task)
        elif knows_workers and not self._knows_workers:
            raise SpecError(
                "the dataset asked torch.utils.data.get_worker_info() for the first time after its first batch, when "
                "one worker was already reading it for all: ask at the start of __iter__, or give replicas='torch'"
            )

    def _replace(self, lost: Lost) -> None:
        """Put another worker in the place of one that died, and have it make what that had not made."""
        worker_index = lost.worker_index
        num_deaths = self._window.lost(worker_index) if lost.is_fault else 0
        if num_deaths >= MAX_DEATHS:
            raise self._failed(f"{lost.cause}; the batch it had begun has now cost {num_deaths} workers")
        state = self._heard_states.get(worker_index)
        if self._is_iterable and not hasattr(self._dataset, "load_state_dict"):
            raise self._failed(
                f"{lost.cause}; the dataset has no load_state_dict() from which another worker could go on"
            )
        _LOG.warning("%s; another worker takes its place", lost.cause)
        self._crew.replace(worker_index, state)
        for order in self._window.unmade_of(worker_index):
            if order not in self._unsent:
                self._crew.submit(*order)

    def _failed(self, text: str) -> WorkerError:
        self._failure = WorkerError(text)
        self._give_back.detach()
        if self._persistent_workers and (loader := self._loader()) is not None:
            loader._iterator = None  # the next iteration has workers of its own
        self._crew.close()
        return self._failure

    def _is_begun_anew(self) -> bool:
        """An iterable dataset's state that was taken at its end, which only shows now, means the next epoch."""
        loader = self._loader()
        if not self._progress.is_rest or loader is None:
            return False
        self._progress.begin_anew()
        self._begin(loader, goes_on=self._persistent_workers)
        return True

    def _end(self) -> None:
        """The iteration is over: its workers are free for another one."""
        if not self._persistent_workers:
            self._give_back()
