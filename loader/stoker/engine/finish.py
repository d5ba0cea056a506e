"""How a batch whose rows are done becomes a record batch, by the policies for bad samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stoker.batch import filler
from stoker.batch.pool import BufferPool
from stoker.batch.schema import MASK_COLUMN
from stoker.engine.probe import Probe
from stoker.engine.settle import settle
from stoker.engine.ticket import Ticket
from stoker.ops.filter import Filter
from stoker.pipeline import OnError, Pipeline

if TYPE_CHECKING:
    import pyarrow as pa


class Finisher:
    """Applies ``on_error`` and the filters' policies; shared by the decoding threads."""

    def __init__(self, pipeline: Pipeline, pool: BufferPool, probe: Probe) -> None:
        self._pool = pool
        self._probe = probe
        self._on_error: OnError = pipeline.on_error
        replaces = any(isinstance(op, Filter) and self._on_filtered(op) == "replace" for op in pipeline.ops)
        self._always_masked = pipeline.on_error == "replace" or replaces

    def finish(self, ticket: Ticket) -> pa.RecordBatch:
        """Make the record batch, and set ``device_fields`` of the ticket.

        Raises the first bad sample's error under ``"raise"``, CollateError, and DataError if the data set has no good
        sample to take the columns from.
        """
        if ticket.errors and self._on_error == "raise":
            raise ticket.errors[min(ticket.errors)]
        builder, work = ticket.builder, ticket.work
        assert builder is not None
        replaced, dropped = self._sorted(ticket)
        given = np.ones(work.num_rows, dtype=np.bool_) if work.mask is None else work.mask
        settled = settle(given, replaced=replaced, dropped=dropped)
        mask = settled.mask if self._always_masked or work.mask is not None else None
        metadata = {"epoch": str(work.epoch), "batch": str(work.batch_index)}
        if settled.rows is None or not len(settled.rows):
            return self._without_samples(mask, len(settled.mask), metadata)
        ticket.device_fields = builder.device_fields(settled.rows)
        return builder.finish(settled.rows, mask, metadata)

    def _without_samples(
        self, mask: NDArray[np.bool_] | None, num_rows: int, metadata: dict[str, str]
    ) -> pa.RecordBatch:
        """Filler in every row, or no row at all, in the columns that a good sample has."""
        made = filler.empty(num_rows, self._probe.schema(), self._pool, metadata)
        return made if mask is not None else made.drop_columns([MASK_COLUMN])

    def _sorted(self, ticket: Ticket) -> tuple[list[int], list[int]]:
        replaced: list[int] = []
        dropped: list[int] = []
        for row in ticket.errors:
            (replaced if self._on_error == "replace" else dropped).append(row)
        for row, refusal in ticket.filtered.items():
            (replaced if self._on_filtered(refusal.op) == "replace" else dropped).append(row)
        return replaced, dropped

    def _on_filtered(self, op: Filter) -> str:
        if op.on_false is not None:
            return op.on_false
        return "replace" if self._on_error == "replace" else "drop"
