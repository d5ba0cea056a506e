"""The columns of a batch that has no good sample of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from stoker.backends.program import Filtered, Program
from stoker.batch.builder import BatchBuilder
from stoker.batch.pool import BufferPool
from stoker.engine.killers import Killers
from stoker.errors import DataError, SampleError, StorageError
from stoker.formats.dataset import Dataset
from stoker.pipeline import Pipeline
from stoker.sample import RawSample

if TYPE_CHECKING:
    import pyarrow as pa

MAX_SAMPLES = 1000
"""How many samples are tried, from the first of the data set on."""


class Probe:
    """Makes the first good sample of the data set, in manifest order and as in epoch 0, to see its columns.

    So they depend neither on what was decoded before nor on where an epoch was resumed. Safe for many threads: two
    that ask at once find the same.
    """

    def __init__(
        self, pipeline: Pipeline, dataset: Dataset, program: Program, pool: BufferPool, killers: Killers
    ) -> None:
        self._pipeline = pipeline
        self._dataset = dataset
        self._program = program
        self._pool = pool
        self._killers = killers
        self._schema: pa.Schema | None = None

    def schema(self) -> pa.Schema:
        """The columns. Raises DataError with the first reasons if no sample that is tried is good; reads chunks."""
        if self._schema is None:
            self._schema = self._find()
        return self._schema

    def _find(self) -> pa.Schema:
        reasons: list[str] = []
        num_tried = 0
        for num_tried, (index, found) in enumerate(self._samples(), start=1):
            made = self._made(index, found) if isinstance(found, RawSample) else found
            if not isinstance(made, Exception):
                return made
            reasons.append(str(made) or "a Filter refused it")
            if num_tried == MAX_SAMPLES:
                break
        raise DataError(
            f"a batch has no good sample, and its columns are unknown, because none of the first {num_tried} samples "
            f"of the data set is good: {'; '.join(reasons[:3])}"
        )

    def _samples(self) -> Iterator[tuple[int, RawSample | StorageError | DataError]]:
        chunks = self._dataset.chunks
        for chunk_index, first in enumerate(chunks.first_sample.tolist()):
            try:
                content = self._dataset.read_chunk(chunk_index)
            except (StorageError, DataError) as error:
                yield first, error
                continue
            for index, found in enumerate(content, start=first):
                killer = self._killers.get(index)
                yield index, found if killer is None else SampleError(killer.reason)

    def _made(self, index: int, raw: RawSample) -> pa.Schema | SampleError | Filtered:
        seed = self._pipeline.seed
        (uniforms,) = self._program.uniforms(seed, 0, np.array([index]))
        builder = BatchBuilder(1, self._pool, self._pipeline.collate or {})
        try:
            builder.put(0, self._program.run(raw, index=index, seed=seed, epoch=0, uniforms=uniforms))
        except (SampleError, Filtered) as refusal:
            return refusal
        return builder.finish(np.arange(1), None, {}).schema
