"""What decoding costs and what it gives, measured on the first samples."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stoker.backends.program import Filtered, Program
from stoker.engine.feed import ChunkUse
from stoker.engine.prepared_rows import Row, UnstorableError, pack, unpack
from stoker.errors import SampleError
from stoker.formats.dataset import ChunkTable
from stoker.sample import Deferred, RawSample, Sample

NUM_ROWS: Final = 64
"""Samples that are measured: a few chunks of photographs. Each is made twice, functions behind the cache included."""

PROBE_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class RowCost:
    """CPU seconds of a sample's ops in one go, and of those behind the cache with unpacking; bytes packed."""

    full_s: float
    suffix_s: float
    packed_bytes: float


class Profile:
    """Collects costs from decoding threads and reads from reading ones."""

    def __init__(self, program: Program, chunks: ChunkTable) -> None:
        self._program = program
        self._sizes = chunks.size_bytes
        self._num_wanted = max(1, min(NUM_ROWS, chunks.num_samples // 2))
        self._lock = threading.Lock()
        self._costs: list[RowCost] = []
        self._num_begun = 0
        self._payloads: list[bytes] = []
        self._payload_bytes = 0
        self._read_bytes = self._in_flight = self._most_in_flight = 0
        self._read_s = 0.0

    def measure(self, raw: RawSample, index: int, seed: int, epoch: int, uniforms: NDArray[np.float64]) -> bool:
        """Make a sample in both ways; True once, when enough are measured. Samples that are bad are left out."""
        with self._lock:
            if self._num_begun >= self._num_wanted:
                return False
            self._num_begun += 1
        try:
            cost, packed = self._measured(raw, index, seed, epoch, uniforms)
        except (SampleError, Filtered, UnstorableError):
            with self._lock:
                self._num_begun -= 1
            return False
        with self._lock:
            self._costs.append(cost)
            if self._payload_bytes < PROBE_BYTES:
                self._payloads.append(packed)
                self._payload_bytes += len(packed)
            return len(self._costs) == self._num_wanted

    def _measured(
        self, raw: RawSample, index: int, seed: int, epoch: int, uniforms: NDArray[np.float64]
    ) -> tuple[RowCost, bytes]:
        begun = time.thread_time()
        whole = self._program.run(raw, index=index, seed=seed, epoch=epoch, uniforms=uniforms)
        _made(whole.fields)
        full_s = time.thread_time() - begun
        sample = Sample(dict(raw.fields), raw.origin, index, seed, epoch)
        self._program.run_prefix(sample)
        packed = pack(Row(raw.origin.key, sample.fields))
        begun = time.thread_time()
        sample.fields = dict(unpack(packed).fields)
        self._program.run_suffix(sample, uniforms)
        _made(sample.fields)
        return RowCost(full_s, time.thread_time() - begun, len(packed)), packed

    @contextlib.contextmanager
    def reading(self, uses: Sequence[ChunkUse]) -> Iterator[None]:
        """Measure a read of raw chunks."""
        with self._lock:
            self._in_flight += 1
            self._most_in_flight = max(self._most_in_flight, self._in_flight)
        begun = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._in_flight -= 1
                self._read_s += time.monotonic() - begun
                self._read_bytes += sum(int(self._sizes[use.chunk_index]) for use in uses)

    def mean(self) -> RowCost | None:
        """The costs of one sample; None if none was good."""
        with self._lock:
            costs = list(self._costs)
        if not costs:
            return None
        return RowCost(
            sum(cost.full_s for cost in costs) / len(costs),
            sum(cost.suffix_s for cost in costs) / len(costs),
            sum(cost.packed_bytes for cost in costs) / len(costs),
        )

    def origin_bytes_s(self) -> float:
        """The rate of one read, times as many as there were at once."""
        with self._lock:
            return self._read_bytes / max(self._read_s, 1e-6) * max(1, self._most_in_flight)

    def probe(self) -> bytes:
        """Some of what was packed, to measure a place with."""
        with self._lock:
            payloads, self._payloads = self._payloads, []
        return b"".join(payloads)


def _made(fields: dict[str, Any]) -> None:
    for value in fields.values():
        if isinstance(value, Deferred):
            value.array()
