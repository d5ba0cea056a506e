"""Memory that a thread uses again and again."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

_KEPT_BYTES = 16 << 20


class Scratch(threading.local):
    """One growing buffer per thread; what :meth:`take` returned is overwritten after its next call in that thread.

    More than 16 MiB are not kept.
    """

    def __init__(self) -> None:
        self._buffer = np.empty(0, np.uint8)

    def take(self, num_bytes: int) -> NDArray[np.uint8]:
        """Return uninitialised memory."""
        if num_bytes > _KEPT_BYTES:
            return np.empty(num_bytes, np.uint8)
        if len(self._buffer) < num_bytes:
            self._buffer = np.empty(num_bytes, np.uint8)
        return self._buffer[:num_bytes]
