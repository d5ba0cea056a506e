"""A sample on its way from bytes to a row of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from stoker.errors import SampleError, SampleOrigin


@dataclass(frozen=True, slots=True)
class RawSample:
    """What a format hands out: undecoded fields, by name.

    The values are ``bytes`` or ``memoryview`` over the chunk they were read with; a view keeps the whole chunk alive.
    Where a format knows numbers and text, as Parquet does, they are NumPy's numbers and arrays, and ``str``.
    """

    origin: SampleOrigin
    fields: Mapping[str, Any]


@dataclass(slots=True)
class Sample:
    """What the ops work on, owned by one thread at a time.

    ``index`` is the sample's number in the whole data set, counted from 0 in manifest order. With ``seed`` and
    ``epoch`` it keys all randomness.
    """

    fields: dict[str, Any]
    origin: SampleOrigin
    index: int
    seed: int
    epoch: int
    conversion: str | None = None
    """How the colours of its picture were changed to those asked for, such as ``"CMYK to RGB"``; for the counters."""


Write = Callable[[], None]
"""Fills the place it was prepared for."""


class Gatherer(Protocol):
    """Makes the pixels of many samples at once, which is quicker than one after the other. For any thread."""

    def make(self, writes: Sequence[Write]) -> Sequence[SampleError | None]:
        """Carry out writes, of which some may be of another kind, and return what became of each.

        It raises nothing that calling them would not raise.
        """
        ...

    def make_fields(self, samples: Sequence[Sample]) -> None:
        """Put pixels in place of what is not made yet in the samples' fields; what cannot be made stays as it is."""
        ...


@runtime_checkable
class Deferred(Protocol):
    """A field whose pixels are made when they are written into their place in a batch."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def writer(self, out: NDArray[Any]) -> Write:
        """Prepare to fill ``out`` (this shape and dtype, C-contiguous); to be called in the same thread.

        The call raises SampleError if the sample is bad.
        """
        ...

    def array(self) -> NDArray[Any]:
        """Return the pixels as a new or owned array. Raises SampleError if the sample is bad."""
        ...
