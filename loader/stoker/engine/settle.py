"""What becomes of the bad samples of a batch."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Settled:
    """Output row ``i`` shows the made row ``rows[i]``; ``mask[i]`` is False if it is not a sample of its own.

    ``rows`` is None when no good sample is there to replace the bad ones: then all rows are filler.
    """

    rows: NDArray[np.int64] | None
    mask: NDArray[np.bool_]


def settle(mask: NDArray[np.bool_], *, replaced: Collection[int], dropped: Collection[int]) -> Settled:
    """Replace rows by the next good row of the batch, going round at its end, and leave dropped rows out.

    ``mask`` marks, with False, rows that are filler to begin with. The result depends on nothing else, so every
    worker that makes the batch agrees on it.
    """
    num_rows = len(mask)
    rows = np.arange(num_rows, dtype=np.int64)
    if not replaced and not dropped:
        return Settled(rows, mask)
    bad = np.zeros(num_rows, dtype=np.bool_)
    bad[list(replaced)] = True
    bad[list(dropped)] = True
    good = np.flatnonzero(~bad)
    keep = np.ones(num_rows, dtype=np.bool_)
    keep[list(dropped)] = False
    mask = mask & ~bad
    if len(good) == 0 and replaced:
        return Settled(None, mask[keep])
    if replaced:
        at = np.searchsorted(good, list(replaced)) % len(good)
        rows[list(replaced)] = good[at]
    return Settled(rows[keep], mask[keep])
