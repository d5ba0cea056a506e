"""What iterations with and without workers have in common."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.utils.data import dataloader as torch_loader

if TYPE_CHECKING:
    from stoker.compat.loader import DataLoader


@dataclass(slots=True)
class Times:
    """Running sums of a loader: what the trainer waited inside ``next()``, and spent outside on its own step.

    ``start_s`` is what it waited for first batches, which says nothing of the rate.
    """

    batches: int = 0
    start_s: float = 0.0
    wait_s: float = 0.0
    between_s: float = 0.0

    @property
    def limited_by(self) -> str:
        """``dataset`` or ``trainer``, which it is when it waits less than a fiftieth of the time."""
        total_s = self.wait_s + self.between_s
        if total_s == 0.0:
            return "unknown"
        return "trainer" if self.wait_s < 0.02 * total_s else "dataset"


class Iteration(torch_loader._BaseDataLoaderIter):
    """torch's base class of iterators: it takes the keys from the sampler and draws the seed.

    Subclasses of it do so at the same points as torch's own, so that every generator gives the same numbers.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._progress = loader._begin_progress()
        self._times = loader._times
        self._left_s: float | None = None
        super().__init__(loader)

    def _begun(self, loader: DataLoader[Any]) -> int:
        """Returns the iteration's seed, when torch has begun to iterate the sampler; a loaded state is used up now."""
        base_seed = self._progress.begun(int(self._base_seed))
        loader._saved = None
        return base_seed

    @property
    def _index_sampler(self) -> Any:
        return self._progress.sampler

    @_index_sampler.setter
    def _index_sampler(self, sampler: Any) -> None:
        """torch's base class sets the loader's own."""

    def __next__(self) -> Any:
        begun_s = time.monotonic()
        value = super().__next__()
        times, now_s = self._times, time.monotonic()
        times.batches += 1
        if self._left_s is None:
            times.start_s += now_s - begun_s
        else:
            times.wait_s += now_s - begun_s
            times.between_s += begun_s - self._left_s
        self._left_s = now_s
        return value
