"""Rows of different lengths in one array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, overload


class Ragged(Sequence[Any]):
    """Row ``i`` is ``values[offsets[i]:offsets[i + 1]]``, a view.

    ``values`` (all rows, one after another) and ``offsets`` (int64, one more than rows) are NumPy arrays or torch
    tensors; for torch's own type: ``torch.nested.nested_tensor_from_jagged(ragged.values, ragged.offsets)``.
    """

    __slots__ = ("offsets", "values")

    def __init__(self, values: Any, offsets: Any) -> None:
        self.values = values
        self.offsets = offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        return self.values[int(self.offsets[place]) : int(self.offsets[place + 1])]

    def __iter__(self) -> Iterator[Any]:
        bounds = self.offsets.tolist()
        for start, stop in pairwise(bounds):
            yield self.values[start:stop]

    def __repr__(self) -> str:
        return f"Ragged({len(self)} rows, values={tuple(self.values.shape)} {self.values.dtype})"
