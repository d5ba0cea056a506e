"""The index batches of a sampler, from its start or without those that were consumed before."""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler
from torch.utils.data.dataloader import _InfiniteConstantSampler

from stoker.compat.packing import pack, unpack
from stoker.errors import StateError


@dataclass(frozen=True, slots=True)
class Batching:
    """How keys are put together; as torch's BatchSampler does."""

    batch_size: int
    drop_last: bool

    def batches(self, keys: Iterator[Any]) -> Iterator[list[Any]]:
        """Lists of keys, taken from ``keys`` no further than needed."""
        while batch := list(islice(keys, self.batch_size)):
            if self.drop_last and len(batch) < self.batch_size:
                return
            yield batch


def unwrapped(index_sampler: Any) -> tuple[Any, Batching | None]:
    """The sampler inside a BatchSampler of torch's or torchdata's, and how that batches; others as they are."""
    torchdata = sys.modules.get("torchdata.stateful_dataloader.sampler")
    if type(index_sampler) in {BatchSampler, getattr(torchdata, "BatchSampler", None)}:
        return index_sampler.sampler, Batching(index_sampler.batch_size, index_sampler.drop_last)
    return index_sampler, None


def has_state(thing: Any) -> bool:
    """Whether something keeps torchdata's convention: ``state_dict`` and ``load_state_dict``."""
    return hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")


class Indices:
    """One pass over a sampler. For one thread.

    torch's BatchSampler asks its sampler for an iterator when the first batch is wanted, not before: what is drawn
    there is drawn then, and an epoch that is set until then counts.
    """

    def __init__(self, index_sampler: Any) -> None:
        self.sampler, self.batching = unwrapped(index_sampler)
        self._iterator: Iterator[Any] | None = None

    @property
    def is_endless(self) -> bool:
        """Whether this is what torch makes for iterable datasets: keys without meaning, without end."""
        return type(self.sampler) is _InfiniteConstantSampler

    @property
    def draws_seed(self) -> bool:
        """Whether the order is decided by a seed alone that is drawn from torch's generator with the first key."""
        return type(self.sampler) is RandomSampler and self.sampler.generator is None

    def start(self) -> Iterator[Any]:
        """From the beginning."""
        if self.batching is None:
            return self._opened(self.sampler)
        return self._batched()

    def open_again(self, num_taken: int, seed: int | None) -> None:
        """Ask the sampler for an iterator, to go on after ``num_taken``; a row in order begins there."""
        if type(self.sampler) is SequentialSampler:
            size = self.batching.batch_size if self.batching else 1
            length = len(self.sampler)
            self._opened(range(min(num_taken * size, length), length))
        else:
            self._opened(self.sampler if seed is None else _seeded(self.sampler, seed))

    def rest(self, num_taken: int) -> tuple[Iterator[Any], Any]:
        """What is left of the iterator that :meth:`open_again` made; the first of what was left out, if it was seen.

        Only keys are left out, no sample is fetched.
        """
        keys, first = self._iterator, None
        assert keys is not None, "open_again() comes first"
        size = self.batching.batch_size if self.batching else 1
        if num_taken and type(self.sampler) is not SequentialSampler and not self.is_endless:
            first = list(islice(keys, size)) if self.batching else next(keys, None)
            num_more = (num_taken - 1) * size
            next(islice(keys, num_more, num_more), None)
        return (self.batching.batches(keys) if self.batching else keys), first

    def restore(self, state: dict[str, Any]) -> Iterator[Any]:
        """What is left after :meth:`state`."""
        sampler_state, iterator_state = state.get("sampler"), state.get("iterator")
        if sampler_state is not None:
            _load(self.sampler, sampler_state)
        keys = self._opened(self.sampler)
        if iterator_state is not None:
            _load(keys, iterator_state)
        return self.batching.batches(keys) if self.batching else keys

    def state_before(self) -> dict[str, Any] | None:
        """The sampler's own state before :meth:`start`; None if it has none."""
        self._iterator = None
        return self.state()

    def state(self) -> dict[str, Any] | None:
        """The states that the sampler and its iterator have themselves; None if neither has one."""
        state = {}
        if has_state(self.sampler):
            state["sampler"] = pack(self.sampler.state_dict())
        if self._iterator is not self.sampler and has_state(self._iterator):
            state["iterator"] = pack(self._iterator.state_dict())  # type: ignore[union-attr]  # has_state
        return state or None

    def _batched(self) -> Iterator[Any]:
        assert self.batching is not None
        yield from self.batching.batches(self._opened(self.sampler))

    def _opened(self, keys: Iterable[Any]) -> Iterator[Any]:
        self._iterator = iter(keys)
        return self._iterator


def peeked_seed() -> int:
    """The seed that a RandomSampler would draw from torch's generator now; draws nothing."""
    copy = torch.Generator()
    copy.set_state(torch.default_generator.get_state())
    return int(torch.empty((), dtype=torch.int64, device="cpu").random_(generator=copy).item())


def draw_seed() -> None:
    """Draw from torch's generator what the start of a RandomSampler draws."""
    torch.empty((), dtype=torch.int64, device="cpu").random_()


def digest(key: Any) -> int | None:
    """A checksum of what a sampler gave, the same in each process; None if it is not made of plain values."""
    try:
        return zlib.crc32(json.dumps(key, default=_plain).encode())
    except (TypeError, ValueError):
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray | torch.Tensor):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no plain value")


def _seeded(sampler: RandomSampler, seed: int) -> RandomSampler:
    generator = torch.Generator()
    generator.manual_seed(seed)
    return RandomSampler(sampler.data_source, sampler.replacement, sampler._num_samples, generator)


def _load(thing: Any, state: Any) -> None:
    if not has_state(thing):
        raise StateError(
            f"the state holds one of the sampler's own, and {type(thing).__qualname__} has no load_state_dict(): "
            "make the loader with the sampler that the state was saved with"
        )
    thing.load_state_dict(unpack(state))
