"""Whether ranges belong to a data set."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stoker.errors import AccessError
from stoker.formats.dataset import Dataset
from stoker.storage.store import ObjectRange
from stoker.storage.urls import shown


class Belongings:
    """The objects of a data set by their URLs, safe for threads.

    Made at the first question, as most data sets are never asked for; 16 bytes an object, as there may be millions.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self._lock = threading.Lock()
        self._table: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def check(self, ranges: Sequence[ObjectRange]) -> None:
        """Raise AccessError, which names it, for a range that is not of these objects as the index here has them."""
        for wanted in ranges:
            if not self.holds(wanted):
                version = f", version {wanted.version!r}," if wanted.version else ""
                raise AccessError(
                    f"bytes {wanted.start} to {wanted.stop} of {shown(wanted.url)}{version} are refused: expected "
                    f"ranges of the objects of data set {self.dataset.fingerprint}, in the versions that its index has "
                    "at this worker. If a worker asks, the objects were written anew since one of the two opened them"
                )

    def holds(self, wanted: ObjectRange) -> bool:
        """Whether the range lies in one of the objects, and means the same version at the same server."""
        hashes, order = self._hashed()
        key = hash(wanted.url)
        place = int(np.searchsorted(hashes, key))
        if place >= len(hashes) or hashes[place] != key:
            return False
        known = self.dataset.object_at(int(order[place]))
        if wanted.url != known.url or not 0 <= wanted.start < wanted.stop <= known.size_bytes:
            return False
        return wanted == self.dataset.stores.range(known.url, wanted.start, wanted.stop, known.version)

    def _hashed(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        with self._lock:
            if self._table is None:
                found = np.fromiter(map(hash, self.dataset.object_urls()), np.int64)
                order = np.argsort(found, kind="stable")
                self._table = found[order], order
            return self._table
