"""Samples and batches made of plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stoker.batch import BatchBuilder, BufferPool
from stoker.errors import SampleError, SampleOrigin
from stoker.sample import Sample, Write


def sample(index: int = 0, *, seed: int = 0, epoch: int = 0, **fields: Any) -> Sample:
    """Sample number ``index``, whose key is its number as text."""
    return Sample(fields, SampleOrigin("file:///shard.tar", index, str(index)), index, seed, epoch)


def batch(rows: Sequence[Mapping[str, Any]], **collate: Any) -> pa.RecordBatch:
    """The batch of samples with these fields; ``collate`` are modes by field."""
    builder = BatchBuilder(len(rows), BufferPool(), collate)
    for i, fields in enumerate(rows):
        builder.put(i, sample(i, **fields))
    return builder.finish(np.arange(len(rows)), None, {})


def column(name: str, values: Sequence[Any], mode: str = "stack") -> pa.RecordBatch:
    """The batch of samples with one field."""
    return batch([{name: value} for value in values], **{name: mode})


def through_ipc(made: pa.RecordBatch) -> pa.RecordBatch:
    """The batch as it comes out of an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, made.schema) as writer:
        writer.write_batch(made)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


class Picture:
    """A Deferred of one colour, or a bad one."""

    def __init__(self, shape: tuple[int, ...], colour: int, *, bad: bool = False) -> None:
        self.shape = shape
        self.dtype = np.dtype(np.uint8)
        self._colour = colour
        self._bad = bad

    def writer(self, out: NDArray[Any]) -> Write:
        return lambda: self.write(out)

    def write(self, out: NDArray[Any]) -> None:
        if self._bad:
            out[:] = 99
            raise SampleError("cut short")
        out[:] = self._colour

    def array(self) -> NDArray[Any]:
        out = np.empty(self.shape, self.dtype)
        self.write(out)
        return out
