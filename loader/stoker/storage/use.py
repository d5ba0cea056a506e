"""When a job reads a range, on the job's own clock."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

NEVER: Final = math.inf


@dataclass(frozen=True, slots=True)
class Use:
    """A read of a range, now, and the next one after it; what a cache decides by.

    ``job`` names a clock: times of one job can be compared. Both times are in epochs of that job: 3.25 is a quarter
    into epoch 3. A range that is read ahead has the time of the coming read as ``next``.
    """

    job: str
    now: float
    next: float = NEVER
