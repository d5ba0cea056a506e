"""What a source of records is to a conversion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stoker.errors import SampleError
from stoker.sample import RawSample


@dataclass(frozen=True, slots=True)
class Survey:
    """How many records each part has, and about how many bytes each record, in the source's order.

    ``problems`` are what is lost without a record's number, such as all that follows a broken frame.
    """

    part_rows: NDArray[np.int64]
    sizes: NDArray[np.int64]
    problems: tuple[SampleError, ...] = ()


class Records(Protocol):
    """A source: parts, each of which can be read without the others. Safe for many threads."""

    @property
    def kind(self) -> str: ...

    @property
    def digest(self) -> str:
        """Names, sizes and versions of all objects: a source with another digest has changed."""
        ...

    @property
    def classes(self) -> Mapping[str, Sequence[str]]:
        """Names of the classes that a field numbers, by field or column, where the source tells them."""
        ...

    @property
    def costs_whole_parts(self) -> bool:
        """Whether one record costs the reading of its whole part, so that shuffling reads the source many times."""
        ...

    def survey(self, pool: Executor) -> Survey:
        """Count the records; called once, before :meth:`read`. Raises StorageError or ShardError."""
        ...

    def read(self, part: int, rows: Sequence[int]) -> Iterator[RawSample | SampleError]:
        """These records of a part, ascending, in this order; a record without a name of its own has the key "".

        Raises ShardError if the rest of them cannot be read.
        """
        ...


def mean_sizes(num_rows: int, num_bytes: int) -> NDArray[np.int64]:
    """The sizes of records of which only the sum is known."""
    return np.full(num_rows, -(-num_bytes // num_rows) if num_rows else 0, np.int64)


def joined(parts: Sequence[NDArray[np.int64]], problems: Sequence[SampleError] = ()) -> Survey:
    """The survey of parts whose records' sizes are given."""
    rows = np.fromiter((len(sizes) for sizes in parts), np.int64, len(parts))
    return Survey(rows, np.concatenate([np.empty(0, np.int64), *parts]), tuple(problems))
