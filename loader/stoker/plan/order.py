"""The permutation of all samples for one (seed, epoch)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stoker.randomness import key64, keyed_permutation, permutation_index

_CHUNKS_STREAM = -1
_WINDOW_STREAM = -2


@dataclass(frozen=True, slots=True)
class Order:
    """Chunks permuted over the whole data set, samples mixed inside windows of ``window_chunks`` chunks.

    ``chunk_at[i]`` is the i-th chunk in reading order, ``stops[i]`` the number of samples up to and with it. Without
    mixing, the samples of a chunk keep their places. Memory is O(chunks); a look-up touches only the windows it
    falls into.
    """

    chunk_at: NDArray[np.int64]
    stops: NDArray[np.int64]
    window_chunks: int
    mix: bool
    seed: int
    epoch: int

    @property
    def num_samples(self) -> int:
        return int(self.stops[-1]) if len(self.stops) else 0

    def windows(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The window each position lies in; non-decreasing for ascending positions."""
        return np.searchsorted(self.stops, positions, side="right") // self.window_chunks

    def at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Chunk and row inside the chunk of the samples at ``positions`` (any order, each below num_samples)."""
        mixed = self._mixed(positions) if self.mix else positions
        slots = np.searchsorted(self.stops, mixed, side="right")
        rows = mixed - np.where(slots > 0, self.stops[slots - 1], 0)
        return self.chunk_at[slots], rows

    def _mixed(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        mixed = np.empty_like(positions)
        windows = self.windows(positions)
        for window in np.unique(windows):
            start, stop = self._extent(int(window))
            inside = windows == window
            key = key64(self.seed, self.epoch, int(window), _WINDOW_STREAM)
            mixed[inside] = start + permutation_index(positions[inside] - start, stop - start, key)
        return mixed

    def _extent(self, window: int) -> tuple[int, int]:
        first = window * self.window_chunks
        last = min(first + self.window_chunks, len(self.stops)) - 1
        return (int(self.stops[first - 1]) if first else 0), int(self.stops[last])


def shuffled(chunk_rows: NDArray[np.int32], *, window_chunks: int, seed: int, epoch: int) -> Order:
    """The order of a shuffled epoch; ``chunk_rows`` has the number of samples of each chunk."""
    chunk_at = keyed_permutation(len(chunk_rows), key64(seed, epoch, 0, _CHUNKS_STREAM))
    stops = np.cumsum(chunk_rows[chunk_at], dtype=np.int64)
    return Order(chunk_at, stops, window_chunks, True, seed, epoch)


def sequential(chunk_rows: NDArray[np.int32], *, epoch: int) -> Order:
    """The order of the manifest, the same in every epoch."""
    chunk_at = np.arange(len(chunk_rows), dtype=np.int64)
    return Order(chunk_at, np.cumsum(chunk_rows, dtype=np.int64), 1, False, 0, epoch)
