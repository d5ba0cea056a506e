"""Threads over the calls that decode, resize and mirror, with nothing of Stoker between them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from stoker import ops
from stoker.backends.cpu import jpeg_header, turbo
from stoker.ops.geometry import Window
from stoker_bench.peers.rows import Row, RowReader

SIZE = 224


class _Job(NamedTuple):
    file: bytes
    region: Window
    """What is decoded: the window, one more pixel on each side, from an MCU's edge on."""
    rows: slice
    columns: slice
    mirrored: bool


class BareLoop:
    """What no loader over the same calls can beat: nothing is read, parsed, drawn, planned, ordered or handed over.

    Files lie in memory, headers are read and windows drawn beforehand. Each thread takes the next picture and calls
    libjpeg-turbo, a copy, torch's anti-aliased resize and OpenCV's flip, into one batch's memory, again and again.
    """

    name = "bare-loop"

    def __init__(self, rows: Sequence[Row], batch_size: int, num_threads: int) -> None:
        self.title = f"bare loop of {num_threads} threads over the same decode calls, files in memory"
        self._batch_size = batch_size
        self._num_threads = num_threads
        reader, draws = RowReader(), np.random.default_rng(0)
        self._jobs = [_job(reader.read(row), draws) for row in rows]
        self._out = np.empty((batch_size, SIZE, SIZE, 3), dtype=np.uint8)
        library = turbo.load()
        if library is None:
            raise RuntimeError("the bare loop needs libjpeg-turbo 3: pip install 'stoker[cpu]'")
        self._library = library
        self._resize = torch.ops.aten._upsample_bilinear2d_aa.out

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
        scratch = np.empty(16 << 20, dtype=np.uint8)
        while (number := next(numbers)) < num_images:
            job = self._jobs[number % len(self._jobs)]
            out = self._out[number % self._batch_size]
            window = self._library.reader(job.file, job.region, 3)()[job.rows, job.columns]
            dense = scratch[: window.size].reshape(window.shape)
            np.copyto(dense, window)
            self._resize(_planes(dense), (SIZE, SIZE), False, None, None, out=_planes(out))
            if job.mirrored:
                cv2.flip(out, 1, dst=out)


def _job(file: bytes, draws: np.random.Generator) -> _Job:
    header = jpeg_header.parse(file)
    crop = ops.RandomResizedCrop("image", SIZE)
    top, left, height, width = crop.window(header.height, header.width, draws.random(crop.num_uniforms).tolist())
    first_row, first_column = max(top - 1, 0), max(left - 1, 0) // header.mcu_width * header.mcu_width
    last_row, last_column = min(top + height + 1, header.height), min(left + width + 1, header.width)
    region = Window(first_row, first_column, last_row - first_row, last_column - first_column)
    rows, columns = (
        slice(top - first_row, top - first_row + height),
        slice(left - first_column, left - first_column + width),
    )
    return _Job(file, region, rows, columns, bool(draws.random() < 0.5))


def _planes(pixels: NDArray[np.uint8]) -> Any:
    """Return a tensor of shape (1, channels, height, width) on the same memory."""
    return torch.from_numpy(pixels.reshape(1, *pixels.shape).transpose(0, 3, 1, 2))
