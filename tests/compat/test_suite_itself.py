"""The suite finds what it is there to find: loaders with one fault each are told from torch's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from support.side_by_side import assert_same, epochs
from support.torch_datasets import Numbers


class Faulty(DataLoader[Any]):
    """torch's own, with room for a fault."""

    def __iter__(self) -> Any:
        return self.spoilt(super().__iter__())

    def spoilt(self, batches: Any) -> Iterator[Any]:
        """The batches with the fault."""
        yield from batches


class Sound(Faulty):
    """No fault."""


class Short(Faulty):
    """Loses the last batch."""

    def spoilt(self, batches: Any) -> Iterator[Any]:
        yield from list(batches)[:-1]


class Swapped(Faulty):
    """Two batches change places."""

    def spoilt(self, batches: Any) -> Iterator[Any]:
        first, second, *rest = batches
        yield from (second, first, *rest)


class OtherType(Faulty):
    """Another dtype, the same numbers."""

    def spoilt(self, batches: Any) -> Iterator[Any]:
        for tensor, *rest in batches:
            yield [tensor.to(torch.int32), *rest]


class OtherStride(Faulty):
    """Other strides, the same numbers."""

    def spoilt(self, batches: Any) -> Iterator[Any]:
        for tensor, *rest in batches:
            yield [tensor.T.contiguous().T, *rest]


class OtherContainer(Faulty):
    """A tuple for a list."""

    def spoilt(self, batches: Any) -> Iterator[Any]:
        yield from map(tuple, batches)


class OtherTextType(Faulty):
    """Lists of texts as tuples."""

    def spoilt(self, batches: Any) -> Iterator[Any]:
        for *rest, texts in batches:
            yield [*rest, list(texts)]


class Rounded(Faulty):
    """One bit of one number."""

    def spoilt(self, batches: Any) -> Iterator[Any]:
        for tensor, numbers, texts in batches:
            yield [tensor, torch.nextafter(numbers, torch.tensor(9e9, dtype=numbers.dtype)), texts]


class Drawing(Faulty):
    """Draws from the trainer's generator."""

    def spoilt(self, batches: Any) -> Iterator[Any]:
        random.random()
        yield from batches


class Warning_(Faulty):  # noqa: N801  # Warning is Python's
    """Warns."""

    def spoilt(self, batches: Any) -> Iterator[Any]:
        import warnings

        warnings.warn("a fault", stacklevel=2)
        yield from batches


class Raising(Faulty):
    """Raises at the end."""

    def spoilt(self, batches: Any) -> Iterator[Any]:
        yield from batches
        raise RuntimeError("a fault")


def use(loader_class: Any) -> Any:
    """Two shuffled epochs."""
    return epochs(loader_class(Numbers(20), batch_size=3, shuffle=True), 2)


def test_no_fault() -> None:
    """What is sound passes."""
    assert_same(use, Sound)


@pytest.mark.parametrize(
    "fault",
    [Short, Swapped, OtherType, OtherStride, OtherContainer, OtherTextType, Rounded, Drawing, Warning_, Raising],
)
def test_faults(fault: type[Faulty]) -> None:
    """Each fault is found, and the text says where."""
    with pytest.raises(AssertionError, match="and with torch's"):
        assert_same(use, fault)


def test_an_error_that_nobody_expects() -> None:
    """When torch itself fails, nothing was compared."""
    with pytest.raises(AssertionError, match="nonsense"):
        assert_same(lambda loader_class: loader_class(Numbers(3), nonsense=1), Sound)
