"""The smallest loader that can be resumed: torch's own, in one process, over our tracked sampler.

It is what the tests of positions run on; ``ahead`` batches are pulled from the sampler before they are wanted, as a
loader with workers does.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from stoker.compat import positions, state
from stoker.compat.positions import TrackedSampler


class ResumableLoader(DataLoader[Any]):
    """torch's loader with ``state_dict`` and ``load_state_dict``."""

    ahead = 0
    iters = 1
    saved: state.Saved | None = None
    tracked: TrackedSampler | None = None
    base_seed: int | None = None

    def begin(self) -> TrackedSampler:
        saved = self.saved
        self.tracked = TrackedSampler(self._index_sampler, self.generator, saved.position if saved else None)
        return self.tracked

    def __iter__(self) -> Any:
        return _Iterator(self)

    def state_dict(self) -> dict[str, Any]:
        if self.tracked is None or (self.saved is not None):
            position = (
                self.saved.position if self.saved else TrackedSampler(self._index_sampler, self.generator).position()
            )
            return state.to_state(self, position, self.saved.base_seed if self.saved else None)
        return state.to_state(self, self.tracked.position(), self.base_seed)

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.saved = state.from_state(self, saved)
        if self.saved is not None:
            positions.prepare(self._index_sampler, self.saved.position)


class _Iterator(_SingleProcessDataLoaderIter):
    def __init__(self, loader: ResumableLoader) -> None:
        self._tracked = loader.begin()
        super().__init__(loader)
        for _ in range(loader.iters - 1):
            self._sampler_iter = iter(self._index_sampler)
        if self._tracked.resumed and loader.saved is not None and loader.saved.base_seed is not None:
            self._base_seed = loader.saved.base_seed
        loader.saved, loader.base_seed = None, int(self._base_seed)
        self._ahead = loader.ahead
        self._keys: deque[Any] = deque()
        self._num_handed_out = 0
        self._pull() if self._ahead else None

    @property
    def _index_sampler(self) -> Any:
        return self._tracked

    @_index_sampler.setter
    def _index_sampler(self, sampler: Any) -> None:
        """torch sets the loader's own."""

    def _pull(self) -> None:
        while len(self._keys) <= self._ahead:
            try:
                self._keys.append(next(self._sampler_iter))
            except StopIteration:
                return

    def _next_index(self) -> Any:
        self._pull()
        if not self._keys:
            raise StopIteration
        return self._keys.popleft()

    def _next_data(self) -> Any:
        value = super()._next_data()  # type: ignore[no-untyped-call]
        self._tracked.taken(self._num_handed_out)
        self._num_handed_out += 1
        return value
