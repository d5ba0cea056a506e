"""An iteration whose samples are fetched where they are asked for, without workers."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from stoker.compat import generators
from stoker.compat.fetch import EndOfDataError, fetcher_of
from stoker.compat.iteration import Iteration
from stoker.compat.pinning import pinned
from stoker.errors import SpecError

if TYPE_CHECKING:
    from stoker.compat.loader import DataLoader


class LocalIterator(Iteration):
    """Fetches in the thread that calls ``next()``; draws on the generators of this process as torch does."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        if loader.timeout != 0:
            raise SpecError(f"timeout={loader.timeout} needs num_workers > 0: without workers nothing is waited for")
        super().__init__(loader)
        self._job = job = loader._job(self._begun(loader), self._progress.worker_states)
        state = job.states[0] if job.states else None
        self._fetcher = fetcher_of(job, job.dataset, job.collate_fn, state)
        self._generators = generators.kept if job.seeding == "sample" else nullcontext
        self._progress.state_is(self._state)

    def _next_data(self) -> Any:
        task = self._progress.next_task(next(self._sampler_iter))
        try:
            with self._generators():
                value = self._fetcher.fetch(task)
        except EndOfDataError:
            if self._progress.is_rest:
                self._progress.begin_anew()
                self._fetcher = fetcher_of(self._job, self._job.dataset, self._job.collate_fn)
                return self._next_data()
            self._progress.ended()
            raise StopIteration from None
        self._progress.took(task.batch_index)
        return pinned(value, self._pin_memory_device) if self._pin_memory else value

    def _state(self) -> Any:
        return self._fetcher.state()
