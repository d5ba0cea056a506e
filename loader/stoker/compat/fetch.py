"""The samples of one batch, taken from a torch dataset and collated."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from stoker.compat import mismatch, seeds
from stoker.compat.crew import Job, Task
from stoker.compat.shortened import shortened
from stoker.errors import StateError
from stoker.processes import failures

_ITERATOR: Final = "iterator"
_DATASET: Final = "dataset"
_NUM_TAKEN: Final = "num_taken"
_HAS_ENDED: Final = "has_ended"

Collate = Callable[[Any], Any]


class EndOfDataError(Exception):
    """An iterable dataset has no more for this task."""


class Fetcher(Protocol):
    """Fetches the batches of one iteration, one after the other, in one thread."""

    def fetch(self, task: Task) -> Any:
        """Return the batch. Raises EndOfDataError, and whatever the user's code raises, with a note of the sample."""

    def state(self) -> Any:
        """Where an iterable dataset stands after what was fetched; None for a map-style one.

        It may refer to what the dataset goes on changing: it is to be pickled or copied before the next fetch.
        """


def fetcher_of(job: Job, dataset: Any, collate_fn: Collate, state: Any = None) -> Fetcher:
    """Begin an iteration over ``dataset``; an iterable one goes on from ``state``, which :meth:`Fetcher.state` gave."""
    if job.is_iterable:
        return _IterableFetcher(job, dataset, collate_fn, state)
    return _MapFetcher(job, dataset, collate_fn)


class _MapFetcher:
    """torch's ``_MapDatasetFetcher``."""

    def __init__(self, job: Job, dataset: Any, collate_fn: Collate) -> None:
        self._job = job
        self._dataset = dataset
        self._collate_fn = collate_fn

    def fetch(self, task: Task) -> Any:
        """See :class:`Fetcher`."""
        if not self._job.auto_collation:
            samples = self._each(task, (task.keys,))[0]
        elif hasattr(self._dataset, "__getitems__") and self._dataset.__getitems__:
            samples = self._together(task)
        else:
            samples = self._each(task, task.keys)
        return _collated(self._job, self._collate_fn, task, samples, lambda: _keys_of(task))

    def state(self) -> Any:
        """See :class:`Fetcher`."""
        return None

    def _each(self, task: Task, keys: Any) -> list[Any]:
        samples: list[Any] = []
        key = None
        try:
            for key in keys:
                _seed(self._job, task, len(samples))
                samples.append(self._dataset[key])
        except StopIteration as error:
            raise _not_the_end(error, "the dataset's __getitem__", _place_of(task, len(samples), key)) from error
        except Exception as error:
            failures.add_note(error, _place_of(task, len(samples), key))
            raise
        return samples

    def _together(self, task: Task) -> Any:
        _seed(self._job, task, 0)
        try:
            return self._dataset.__getitems__(task.keys)
        except StopIteration as error:
            raise _not_the_end(error, "the dataset's __getitems__", f"fetching {_keys_of(task)}") from error
        except Exception as error:
            failures.add_note(error, f"fetching {_keys_of(task)}")
            raise


class _IterableFetcher:
    """torch's ``_IterableDatasetFetcher``, with a state.

    The state is what torchdata's loader keeps, loaded in its order: the dataset before ``iter()``, the iterator after
    it. Where neither has one it is the number of samples, which are then read again and dropped.
    """

    def __init__(self, job: Job, dataset: Any, collate_fn: Collate, state: Any) -> None:
        self._job = job
        self._dataset = dataset
        self._collate_fn = collate_fn
        self._num_taken = 0
        self._has_ended = False
        if state is not None and state[_DATASET] is not None:
            _load(dataset, state[_DATASET], "the dataset")
        self._iterator: Iterator[Any] = iter(dataset)
        if state is not None:
            self._go_on(state)

    def fetch(self, task: Task) -> Any:
        """See :class:`Fetcher`."""
        if self._has_ended:
            raise EndOfDataError
        if not self._job.auto_collation:
            samples = self._next(task, 0)
            if self._has_ended:
                raise EndOfDataError
        else:
            samples = self._up_to(task, len(task.keys))
            if not samples or (self._job.drop_last and len(samples) < len(task.keys)):
                raise EndOfDataError
        return _collated(self._job, self._collate_fn, task, samples, lambda: self._last(samples))

    def state(self) -> Any:
        """See :class:`Fetcher`."""
        iterator = _state_of(self._iterator)
        dataset = _state_of(self._dataset) if self._iterator is not self._dataset else None
        return {
            _ITERATOR: iterator,
            _DATASET: dataset,
            _NUM_TAKEN: self._num_taken,
            _HAS_ENDED: self._has_ended,
        }

    def _go_on(self, state: Any) -> None:
        if state[_ITERATOR] is not None:
            _load(self._iterator, state[_ITERATOR], "the dataset's iterator")
        self._has_ended = state[_HAS_ENDED]
        if state[_ITERATOR] is None and state[_DATASET] is None and not self._has_ended:
            for _ in range(state[_NUM_TAKEN]):
                next(self._iterator, None)
        self._num_taken = state[_NUM_TAKEN]

    def _up_to(self, task: Task, num_samples: int) -> list[Any]:
        samples: list[Any] = []
        for row in range(num_samples):
            sample = self._next(task, row)
            if self._has_ended:
                break
            samples.append(sample)
        return samples

    def _next(self, task: Task, row: int) -> Any:
        """The next sample; None, and the end is noted, if there is none."""
        _seed(self._job, task, row)
        try:
            sample = next(self._iterator)
        except StopIteration:
            self._has_ended = True
            return None
        except Exception as error:
            failures.add_note(
                error, f"sample {self._num_taken} of this iterator (row {row} of batch {task.batch_index})"
            )
            raise
        self._num_taken += 1
        return sample

    def _last(self, samples: Any) -> str:
        num_samples = len(samples) if self._job.auto_collation else 1
        return f"samples {self._num_taken - num_samples} to {self._num_taken - 1} of this iterator"


def _collated(job: Job, collate_fn: Collate, task: Task, samples: Any, which: Callable[[], str]) -> Any:
    _seed(job, task, seeds.AFTER_THE_ROWS)
    try:
        return collate_fn(samples)
    except StopIteration as error:
        raise _not_the_end(error, "collate_fn", f"collating {which()}") from error
    except Exception as error:
        failures.add_note(error, f"collating {which()}{_difference(job, task, samples)}")
        raise


def _difference(job: Job, task: Task, samples: Any) -> str:
    """Where the samples differ, if they do: torch's errors name neither field nor sample."""
    if not job.auto_collation or not isinstance(samples, list) or not samples:
        return ""
    keys = range(len(samples)) if job.is_iterable else task.keys
    found = mismatch.first_difference(samples, keys) if len(keys) == len(samples) else None
    return f"; {found}" if found else ""


def _seed(job: Job, task: Task, row: int) -> None:
    if job.seeding == "sample":
        seeds.seed_sample(job.base_seed, task.batch_index, row)


def _not_the_end(error: StopIteration, who: str, where: str) -> RuntimeError:
    """torch's loader takes a StopIteration that user code lets out for the end of the epoch, and says nothing."""
    instead = RuntimeError(f"{who} raised StopIteration{f': {error}' if error.args else ''}")
    failures.add_note(instead, where)
    return instead


def _place_of(task: Task, row: int, key: Any) -> str:
    return f"sample index {reprlib.repr(key)} (row {row} of batch {task.batch_index})"


def _keys_of(task: Task) -> str:
    return f"batch {task.batch_index}: sample indices {shortened(task.keys)}"


def _state_of(value: Any) -> Any:
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        return value.state_dict()
    return None


def _load(value: Any, state: Any, what: str) -> None:
    if not hasattr(value, "load_state_dict"):
        raise StateError(f"the state is of {what}, which has no load_state_dict (it is a {type(value).__name__})")
    value.load_state_dict(state)
