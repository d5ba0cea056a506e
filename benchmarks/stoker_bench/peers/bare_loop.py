"""Threads that run Stoker's own decode calls over files in memory, with no loader round them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import stoker
from stoker.backends.registry import compile_ops
from stoker.errors import SampleOrigin
from stoker.sample import RawSample
from stoker_bench.peers.rows import Row, RowReader

SIZE = 224


class BareLoop:
    """What no loader over the same calls can beat: nothing is read, planned, ordered or handed over.

    Windows are drawn beforehand; each thread takes the next picture and writes it into one batch's memory, again and
    again.
    """

    name = "bare-loop"

    def __init__(self, rows: Sequence[Row], batch_size: int, num_threads: int) -> None:
        self.title = f"bare loop of {num_threads} threads over the same decode calls, files in memory"
        self._batch_size = batch_size
        self._num_threads = num_threads
        reader = RowReader()
        self._files = [
            RawSample(SampleOrigin(row.shard, number, ""), {"jpg": reader.read(row), "cls": str(row.label).encode()})
            for number, row in enumerate(rows)
        ]
        pipeline = stoker.Pipeline.preset("imagenet_train", rows[0].shard, batch_size=batch_size)
        self._program = compile_ops(pipeline.ops)
        self._uniforms = self._program.uniforms(0, 0, np.arange(len(self._files)))
        self._out = np.empty((batch_size, SIZE, SIZE, 3), dtype=np.uint8)

    def images_per_s(self, num_batches: int) -> float:
        """Decode ``num_batches`` batches' worth of pictures."""
        numbers = itertools.count()
        num_images = num_batches * self._batch_size
        started = time.perf_counter()
        with ThreadPoolExecutor(self._num_threads) as pool:
            for done in [pool.submit(self._decode, numbers, num_images) for _ in range(self._num_threads)]:
                done.result()
        return num_images / (time.perf_counter() - started)

    def _decode(self, numbers: itertools.count[int], num_images: int) -> None:
        while (number := next(numbers)) < num_images:
            index = number % len(self._files)
            sample = self._program.run(self._files[index], index=index, seed=0, epoch=0, uniforms=self._uniforms[index])
            sample.fields["image"].writer(self._out[number % self._batch_size])()
