"""One batch on its way through the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stoker.engine.feed import Work
from stoker.engine.killers import Killer
from stoker.errors import SampleError
from stoker.formats.dataset import ChunkContent

if TYPE_CHECKING:
    import pyarrow as pa

    from stoker.backends.program import Filtered
    from stoker.batch.builder import BatchBuilder


@dataclass(slots=True)
class Ticket:
    """A batch from the moment it is planned until the trainer has it.

    Its life: *planned* (``num_missing`` chunks are not here), *ready* (none is missing; ``ready_s`` is set), *decoding*
    (``contents``, ``uniforms`` and ``builder`` are set; threads fill rows), *made* (``batch`` or ``failure`` is set).
    Times are of a monotonic clock. Of a ``careful`` one each sample is tried in a child process first; ``killers`` are
    those, of any ticket, that are not made since they end their process.
    """

    number: int
    work: Work
    num_missing: int
    ready_s: float = 0.0
    contents: tuple[ChunkContent, ...] = ()
    uniforms: NDArray[np.float64] | None = None
    builder: BatchBuilder | None = None
    num_rows_left: int = 0
    errors: dict[int, SampleError] = field(default_factory=dict)
    filtered: dict[int, Filtered] = field(default_factory=dict)
    conversions: dict[int, str] = field(default_factory=dict)
    careful: bool = False
    killers: list[Killer] = field(default_factory=list)
    failure: BaseException | None = None
    batch: pa.RecordBatch | None = None
    device_fields: dict[str, Any] = field(default_factory=dict)

    @property
    def num_bytes(self) -> int:
        """Memory of what was made."""
        held = 0 if self.batch is None else int(self.batch.nbytes)
        return held + sum(int(tensor.nbytes) for tensor in self.device_fields.values())

    @property
    def bad(self) -> list[SampleError]:
        """The bad samples, by row."""
        return [error for _, error in sorted(self.errors.items())]
