"""Where an iteration over a sampler is, so that another process can go on from there."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

import torch

from stoker import ranks
from stoker.compat import indices, sources
from stoker.compat.indices import Indices
from stoker.compat.sources import Epoch, Source, Sources
from stoker.errors import SpecError, StateError, StokerWarning

_END: Final = object()


class TrackedSampler:
    """An index sampler that torch's iterator iterates in place of the loader's own, for ONE iteration.

    Life, as a loader's iterator uses it; all in one thread:

    1. Made anew for each iteration, before ``_BaseDataLoaderIter.__init__`` (or ``_reset``); with ``position`` if a
       state was loaded that no iteration has used yet. Draws nothing.
    2. torch's code calls ``iter(tracked)``, once or twice, and draws the base seed before, between or after; for
       that the iterator class answers ``_index_sampler`` with this object::

           @property
           def _index_sampler(self): return self._progress.sampler
           @_index_sampler.setter
           def _index_sampler(self, sampler): pass      # torch's __init__ sets the loader's own

    3. ``resumed`` is known after the first ``iter()``: True: what follows is the rest of the saved epoch, the saved
       base seed holds; False: a whole epoch, with torch's own base seed (also when nothing was left of the saved one).
    4. ``next()`` on the iterator pulls index batches, as far ahead as one likes. :meth:`taken` is called for each that
       was handed out to the user, in any order. :meth:`position` at any time.
    """

    resumed: bool = False

    def __init__(
        self, index_sampler: Any, generator: torch.Generator | None, position: dict[str, Any] | None = None
    ) -> None:
        self._sampler = index_sampler
        self._indices = Indices(index_sampler)
        self._own = sources.own(index_sampler, generator)
        shared = sources.shared(self._indices.sampler)
        self._all: Sources = {**shared, **self._own}
        self._certain = {**self._own, **shared} if len(shared) == 1 else self._own
        self._loaded = position or None
        self._rest: Iterator[Any] | None = None
        self._marks: dict[str, Any] | None = None
        self._begun = False
        self._num_before = self._num_taken = self._num_pulled = 0
        self._left_out: frozenset[int] = frozenset()
        self._ahead: set[int] = set()
        self._states: dict[int, Any] = {}

    def __iter__(self) -> Iterator[Any]:
        if self._rest is not None:
            return self._rest
        loaded, self._loaded = self._loaded, None
        if loaded is not None and loaded["begun"]:
            self._rest = self._replay(loaded)
        elif loaded is not None:
            sources.put_back(sources.generators_of(self._own), loaded["pull"])
        return self._rest or self._start()

    def __len__(self) -> int:
        return len(self._sampler)

    def index_of(self, key_number: int) -> int:
        """The place in the epoch of the key that this iteration gives as its ``key_number``-th, from 0."""
        index = self._num_before + key_number
        for left_out in sorted(self._left_out):
            index += left_out <= index
        return index

    def taken(self, key_number: int) -> None:
        """The batch of the ``key_number``-th key that this iteration gave was handed out."""
        if self._indices.is_endless:
            # Keys given to a worker whose data had ended are never heard of again.
            self._num_taken += 1
            return
        self._ahead.add(self.index_of(key_number))
        while self._num_taken in self._ahead:
            self._ahead.remove(self._num_taken)
            self._states.pop(self._num_taken, None)
            self._num_taken += 1

    def position(self) -> dict[str, Any]:
        """Where the iteration is: what was handed out, not what was pulled. JSON values, shared with nobody."""
        if self._loaded is not None:
            return copy.deepcopy(self._loaded)
        if not self._begun:
            return {"begun": False, "pull": sources.states(self._own)}
        position = {"begun": True, "num_taken": self._num_taken, **copy.deepcopy(self._marks or self._marks_now())}
        if self._ahead:
            position["ahead"] = sorted(self._ahead)
        state = self._states.get(self._num_taken)
        if state is not None:
            position["state"] = state
            position["pull"] = {
                name: mark for name, mark in position["pull"].items() if _is_outside(name, self._all.get(name))
            }
            position["iter"] = {}
        return position

    # -- from the beginning -------------------------------------------------------------------------------------------

    def _start(self) -> Iterator[Any]:
        if (state := self._indices.state_before()) is not None:
            self._states[0] = state
        before = sources.states(self._all)
        keys = self._indices.start()
        self._unmoved = sources.states(self._all)
        self._changed = {name: mark for name, mark in before.items() if mark != self._unmoved[name]}
        self._begun, self._marks = True, None
        return self._marked(self._pulled(keys))

    def _marked(self, keys: Iterator[Any]) -> Iterator[Any]:
        """The keys; what the first depends on is marked when it is asked for, not before."""
        before, marks = sources.states(self._all), self._marks_now()
        first = next(keys, _END)
        after = sources.states(self._all)
        moved = {name: mark for name, mark in before.items() if mark != after[name] and name not in self._changed}
        marks["pull"].update(moved)
        if first is _END:
            return
        marks["first"] = [_rank(), indices.digest(first)]
        self._marks = marks
        yield first
        yield from keys

    def _marks_now(self) -> dict[str, Any]:
        """What the order depends on, if the first key is asked for now.

        What the loader owns is marked always, and what its sampler is known to draw from. A generator that ``iter()``
        has drawn from is marked before that, and now only if something else, such as the base seed, was drawn from
        it since.
        """
        pull = {name: mark for name, mark in sources.states(self._certain).items() if name not in self._changed}
        for name in self._changed:
            if (mark := self._all[name].get()) != self._unmoved[name]:
                pull[name] = mark
        seed = indices.peeked_seed() if self._indices.draws_seed else None
        return {"iter": self._changed, "pull": pull, "seed": seed}

    def _pulled(self, keys: Iterator[Any]) -> Iterator[Any]:
        for key in keys:
            self._num_pulled += 1
            state = self._indices.state()
            if state is not None:
                self._states[self._num_pulled] = state
            yield key

    # -- from a position ----------------------------------------------------------------------------------------------

    def _replay(self, loaded: dict[str, Any]) -> Iterator[Any] | None:
        """The rest of the saved epoch; None if nothing is left of it, and all is as at its end."""
        told = sources.states(sources.epochs_of(self._own))
        kept = {**loaded["pull"], **loaded["iter"]}
        others = {name: epoch for name, epoch in told.items() if epoch != kept.get(name, epoch)}
        self._num_pulled = loaded["num_taken"]
        keys = self._pulled(self._reopened(loaded))
        first = _END if loaded.get("finished") else next(keys, _END)
        if first is _END and 0 in self._states:
            # Some samplers keep the state of the last epoch's end until the first key of the next is asked for.
            keys = self._pulled(self._indices.restore({}))
            first = next(keys, _END)
        if first is _END:
            self._num_pulled = 0
            self._states.clear()
            sources.put_back(self._own, others)
            return None
        for name, epoch in others.items():
            raise StateError(
                f"the state is of epoch {kept[name]}, after {loaded['num_taken']} batches of it; {name} was set to "
                f"{epoch} since it was loaded. Call set_epoch({kept[name]}), or go on without the state"
            )
        self._resume(loaded)
        return self._going_on(chain([first], keys))

    def _reopened(self, loaded: dict[str, Any]) -> Iterator[Any]:
        num_taken, state = loaded["num_taken"], loaded.get("state")
        sources.put_back(self._all, kept := loaded["pull"])
        sources.put_back(self._all, loaded["iter"])
        if state is not None:
            self._states[num_taken] = state
            return self._indices.restore(state)
        self._indices.open_again(num_taken, loaded.get("seed"))
        if self._indices.batching is None:
            sources.put_back(self._all, kept)
        keys, first = self._indices.rest(num_taken)
        self._check_first(loaded, first)
        return keys

    def _resume(self, loaded: dict[str, Any]) -> None:
        self.resumed = self._begun = True
        self._marks = {name: loaded.get(name) for name in ("iter", "pull", "seed", "first")}
        self._num_before = self._num_taken = loaded["num_taken"]
        self._left_out = frozenset(loaded.get("ahead", ()))
        self._ahead = set(self._left_out)
        touched = {name: self._all[name] for name in (*loaded["iter"], *loaded["pull"]) if name in self._all}
        self._replayed = sources.states(sources.generators_of(touched))

    def _going_on(self, keys: Iterator[Any]) -> Iterator[Any]:
        # torch has drawn a base seed since the replay, and the loader has the saved one: undo it.
        sources.put_back(self._all, self._replayed)
        if self._indices.draws_seed:
            indices.draw_seed()
        for index, key in enumerate(keys, self._num_before):
            if index not in self._left_out:
                yield key

    def _check_first(self, loaded: dict[str, Any], first: Any) -> None:
        saved = loaded.get("first")
        if first is None or not saved or None in saved or saved[0] != _rank():
            return
        if saved[1] != indices.digest(first):
            warnings.warn(
                f"{type(self._indices.sampler).__qualname__} began the saved epoch with other indices than now: what "
                "is left of it cannot be told, some samples may come again and others not. Give the sampler "
                "state_dict() and load_state_dict(), or let it draw from a generator that it has as an attribute",
                StokerWarning,
                stacklevel=2,
            )


def prepare(index_sampler: Any, position: dict[str, Any]) -> None:
    """Set the ``epoch`` of samplers to that of a position; called by ``load_state_dict``.

    So a ``set_epoch`` to another one afterwards is seen when the iteration begins: StateError, unless the saved epoch
    was consumed to its end.
    """
    kept = {**position.get("pull", {}), **position.get("iter", {})}
    sources.put_back(dict(sources.epochs_of(sources.own(index_sampler, None))), kept)


def _is_outside(name: str, source: Source | None) -> bool:
    """Whether it is no part of a state that the sampler keeps itself."""
    return name == sources.OF_LOADER or isinstance(source, Epoch)


def _rank() -> int:
    try:
        return ranks.find(None, None).index
    except SpecError:  # an odd environment is no reason to refuse torch's loader
        return 0
