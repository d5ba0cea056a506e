"""What the order of a sampler depends on: the generators it may draw from, the epoch it was told."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import torch
from torch.utils.data import (
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.dataloader import _InfiniteConstantSampler
from torch.utils.data.distributed import DistributedSampler

from stoker.compat.packing import pack, unpack

OF_LOADER: Final = "generator"
"""The name of the loader's own generator."""

_SEVERAL: Final = 64
"""A list with more parts than this is data, not a list of samplers."""


class Source(Protocol):
    """Something that has a state which can be taken and set, as JSON values that can be compared."""

    def get(self) -> Any:
        """Its state now."""

    def set(self, state: Any) -> None:
        """Put it where it was."""


@dataclass(frozen=True, slots=True)
class TorchGenerator:
    """A generator of torch's."""

    generator: torch.Generator

    def get(self) -> Any:
        return pack(self.generator.get_state())

    def set(self, state: Any) -> None:
        self.generator.set_state(unpack(state))


@dataclass(frozen=True, slots=True)
class PythonGenerator:
    """A generator of Python's."""

    generator: random.Random

    def get(self) -> Any:
        version, words, gauss = self.generator.getstate()
        return [version, pack(np.array(words, dtype=np.uint32)), gauss]

    def set(self, state: Any) -> None:
        version, words, gauss = state
        self.generator.setstate((version, tuple(unpack(words).tolist()), gauss))


@dataclass(frozen=True, slots=True)
class NumpyBits:
    """What a Generator of NumPy's draws its bits from."""

    bits: np.random.BitGenerator

    def get(self) -> Any:
        return pack(self.bits.state)

    def set(self, state: Any) -> None:
        self.bits.state = unpack(state)


@dataclass(frozen=True, slots=True)
class NumpyRandomState:
    """A RandomState of NumPy's, or, without one, that of the module's functions."""

    generator: np.random.RandomState | None = None

    def get(self) -> Any:
        return pack((self.generator or np.random).get_state(legacy=False))

    def set(self, state: Any) -> None:
        (self.generator or np.random).set_state(unpack(state))


@dataclass(frozen=True, slots=True)
class Epoch:
    """The epoch that a sampler was told, or counts itself; some seed their generator anew when they are told."""

    sampler: Any

    def get(self) -> Any:
        return int(self.sampler.epoch)

    def set(self, state: Any) -> None:
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(state)
        else:
            self.sampler.epoch = state


Sources: TypeAlias = dict[str, Source]


def own(sampler: Any, generator: torch.Generator | None) -> Sources:
    """The generators that belong to a loader: its own, and those that its samplers have as attributes; the epochs too.

    The names are the same in every process: they are the attributes' paths.
    """
    found: Sources = {}
    seen = {id(torch.default_generator)}
    if generator is not None and generator is not torch.default_generator:
        found[OF_LOADER] = TorchGenerator(generator)
        seen.add(id(generator))
    for path, value in _parts("sampler", sampler, seen):
        if (source := _source_of(value)) is not None:
            found[path] = source
        elif type(getattr(value, "epoch", None)) is int and (
            "epoch" in _attributes(value) or hasattr(value, "set_epoch")
        ):
            found[f"{path}.epoch"] = Epoch(value)
    return found


def epochs_of(found: Sources) -> Sources:
    """The epochs alone."""
    return {name: source for name, source in found.items() if isinstance(source, Epoch)}


def generators_of(found: Sources) -> Sources:
    """All but the epochs."""
    return {name: source for name, source in found.items() if not isinstance(source, Epoch)}


def shared(sampler: Any) -> Sources:
    """The generators of the process that a sampler may draw its order from.

    One alone if that is known: torch's own samplers draw from torch's only, and RandomSampler just the seed of another.
    """
    kind = type(sampler)
    if kind in {SequentialSampler, DistributedSampler, RandomSampler, _InfiniteConstantSampler}:
        return {}
    found: Sources = {"torch": TorchGenerator(torch.default_generator)}
    if kind in {SubsetRandomSampler, WeightedRandomSampler}:
        return found if sampler.generator is None else {}
    # The instance behind the functions of the module has no public name; its methods are public.
    python: Any = random.seed
    return {**found, "python": PythonGenerator(python.__self__), "numpy": NumpyRandomState()}


def states(sources: Sources) -> dict[str, Any]:
    """The state of each."""
    return {name: source.get() for name, source in sources.items()}


def put_back(sources: Sources, kept: dict[str, Any]) -> None:
    """Set those whose state was kept, epochs first; a name that is not there any more is passed over."""
    for part in (epochs_of(sources), generators_of(sources)):
        for name, source in part.items():
            if name in kept:
                source.set(kept[name])


def _source_of(value: Any) -> Source | None:
    match value:
        case torch.Generator():
            return TorchGenerator(value)
        case random.SystemRandom():
            return None
        case random.Random():
            return PythonGenerator(value)
        case np.random.Generator():
            return NumpyBits(value.bit_generator)
        case np.random.RandomState():
            return NumpyRandomState(value)
        case _:
            return None


def _parts(path: str, value: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """A sampler with the samplers and generators inside it, each with its path; not what lies in a dataset."""
    if id(value) in seen:
        return
    seen.add(id(value))
    yield path, value
    if _source_of(value) is not None:
        return
    for name, part in sorted(_attributes(value).items()):
        if isinstance(part, list | tuple):
            several = enumerate(part) if len(part) <= _SEVERAL else ()
            inside = [(f"{path}.{name}.{index}", each) for index, each in several if isinstance(each, Sampler)]
        else:
            inside = [(f"{path}.{name}", part)] if _is_part(name, part) else []
        for inner_path, inner in inside:
            yield from _parts(inner_path, inner, seen)


def _is_part(name: str, value: Any) -> bool:
    """Whether an attribute is a generator, a sampler, or something that wraps a sampler, as Lightning does."""
    if _source_of(value) is not None or isinstance(value, Sampler):
        return True
    return name.endswith("sampler") or any(inner.endswith("sampler") for inner in _attributes(value))


def _attributes(value: Any) -> dict[str, Any]:
    found = getattr(value, "__dict__", None)
    return found if isinstance(found, dict) else {}
