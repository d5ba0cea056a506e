"""Stoker itself, as the comparison drives it."""

from __future__ import annotations

from collections.abc import Iterator

import stoker
from stoker.dataloader import DEFAULT_PREFETCH_BYTES
from stoker_bench import rates

ROW_BYTES = 224 * 224 * 3


class Ours:
    """The preset ``imagenet_train``, all else by default; torch tensors out. Through a service, if one is given."""

    def __init__(self, pattern: str, batch_size: int, *, service: str | None = None) -> None:
        pipeline = stoker.Pipeline.preset("imagenet_train", pattern, batch_size=batch_size)
        self._loader = stoker.DataLoader(pipeline, output="torch", service=service)
        self.num_queued = DEFAULT_PREFETCH_BYTES // (batch_size * ROW_BYTES) + 4
        """More batches than the loader makes ahead; a service's workers have theirs beside them."""
        self._batches = map(rates.num_rows, rates.endless(self._loader))

    def batches(self) -> Iterator[int]:
        """Yield the number of rows of each batch."""
        return self._batches

    def close(self) -> None:
        """Stop the loader's threads."""
        self._loader.close()
