"""Which arrays of a batch are copied together; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

SMALL_BYTES: Final = 64 << 10
"""What is smaller is copied together with others of its kind: to start a copy costs more than to copy so much."""

ALIGNMENT_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class Run:
    """C-contiguous arrays of one column that lie one behind the other, up to the next 64-byte boundary.

    Array ``i`` begins at byte ``starts[i]`` of the run's ``num_bytes``.
    """

    arrays: tuple[NDArray[Any], ...]
    starts: tuple[int, ...]
    num_bytes: int

    @property
    def is_small(self) -> bool:
        return self.num_bytes < SMALL_BYTES

    def memory(self) -> NDArray[np.uint8]:
        """All their bytes, as one view; valid as long as the batch is."""
        first = next((array for array in self.arrays if array.nbytes), self.arrays[0])
        flat = first.reshape(-1).view(np.uint8)
        return np.lib.stride_tricks.as_strided(flat, (self.num_bytes,), (1,))


def runs_of(columns: Sequence[Sequence[NDArray[Any]]]) -> list[Run]:
    """Each column as few runs as its memory allows, in the given order: mostly one.

    A list of arrays is one, a ragged column two, of which the offsets are small.
    """
    return [_run(arrays) for column in columns for arrays in _adjacent(column)]


def packed_offsets(runs: Sequence[Run]) -> tuple[list[int], int]:
    """Where each run stands when they are put side by side, each aligned, and the bytes of all."""
    offsets, end = [], 0
    for run in runs:
        offsets.append(end)
        end += -(-run.num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return offsets, end


def _run(arrays: Sequence[NDArray[Any]]) -> Run:
    origin = next((array.ctypes.data for array in arrays if array.nbytes), 0)
    starts = tuple(array.ctypes.data - origin if array.nbytes else 0 for array in arrays)
    num_bytes = max(start + array.nbytes for start, array in zip(starts, arrays, strict=True))
    return Run(tuple(arrays), starts, num_bytes)


def _adjacent(column: Sequence[NDArray[Any]]) -> list[list[NDArray[Any]]]:
    found: list[list[NDArray[Any]]] = []
    end = None  # of the last array with numbers in the last run
    for array in column:
        begin = array.ctypes.data
        if not found or (array.nbytes and end is not None and not 0 <= begin - end < ALIGNMENT_BYTES):
            found.append([])
        found[-1].append(array)
        end = begin + array.nbytes if array.nbytes else end
    return found
