"""How torch's DataLoader is driven: persistent workers, endless epochs, the better of some prefetch depths."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

import torch

from stoker.compat import DataLoader
from stoker_bench.contender import Stream

SWEEP_BATCHES = 8
LOADERS: dict[str, Any] = {"torch": torch.utils.data.DataLoader, "stoker": DataLoader}


class TorchLoader:
    """One DataLoader over a map-style data set, epoch after epoch; the workers live on between epochs.

    torch's are started by a fork server, because this process may already have threads. ``which`` is one of
    :data:`LOADERS`; ``more`` goes to it.
    """

    def __init__(
        self,
        dataset: torch.utils.data.Dataset[Any],
        batch_size: int,
        num_workers: int,
        prefetch: int,
        which: str = "torch",
        **more: Any,
    ) -> None:
        self.prefetch = prefetch
        if which == "torch":
            more["multiprocessing_context"] = "forkserver"
        self._loader = LOADERS[which](
            dataset,
            batch_size=batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=num_workers,
            persistent_workers=True,
            prefetch_factor=prefetch,
            **more,
        )
        self._batches = self._endless()

    def batches(self) -> Iterator[int]:
        """Yield the number of rows of each batch."""
        return self._batches

    def close(self) -> None:
        """End the workers."""
        self._batches.close()
        if isinstance(self._loader, DataLoader):
            self._loader.close()
            return
        iterator = self._loader._iterator  # torch ends persistent workers only here, or when the object dies
        if iterator is not None:
            iterator._shutdown_workers()

    def _endless(self) -> Generator[int, None, None]:
        while True:
            for batch in self._loader:
                yield len(batch[0] if isinstance(batch, list) else batch)


def tuned(
    dataset: torch.utils.data.Dataset[Any], batch_size: int, num_workers: int, prefetches: Sequence[int]
) -> TorchLoader:
    """Return the loader with the fastest prefetch depth, measured over a few batches each."""
    loaders = []
    for prefetch in prefetches:
        loader = TorchLoader(dataset, batch_size, num_workers, prefetch)
        stream = Stream("sweep", "", loader.batches(), prefetch * num_workers)
        loaders.append((stream.images_per_s(SWEEP_BATCHES), loader))
    _, best = max(loaders, key=lambda measured: measured[0])
    for _, loader in loaders:
        if loader is not best:
            loader.close()
    return best
