"""A chain of ops, compiled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stoker.errors import SampleError
from stoker.ops.op import Op
from stoker.randomness import uniforms
from stoker.sample import Gatherer, RawSample, Sample

if TYPE_CHECKING:
    from stoker.ops.filter import Filter

Kernel = Callable[[Sample, NDArray[np.float64]], None]
"""Carries out one op: changes ``sample.fields``. Its uniforms are the op's own, for this sample and epoch.

Called in many threads at once, each with its own sample. Raises SampleError, or KeyError with the name of a field that
the op reads and the sample lacks.
"""


_NO_UNIFORMS = np.empty(0)

ROWS_PER_TASK = 8
"""Rows that a thread takes at once: few, so that a slow sample holds up little; several, since Python code that runs
for one sample after the other finds itself in the core's caches, which decoding one sample empties."""


class Filtered(Exception):  # noqa: N818  # a verdict, not an error
    """The sample is not wanted by ``op``: neither an error nor quarantined."""

    def __init__(self, op: Filter) -> None:
        super().__init__(op)
        self.op = op


class Program:
    """Kernels in order; safe to run in many threads.

    The first ``prefix_length`` stand before a cache of what they make: they draw nothing, and can be run without the
    others. Before each of the ``stops``, steps behind the cache, and after the last step, pictures are better made for
    many samples together, by the ``gatherer``, if there is one. ``rows_per_task`` is how many a thread takes at once.
    """

    def __init__(
        self,
        kernels: Sequence[tuple[Op, Kernel]],
        prefix_length: int = 0,
        stops: Sequence[int] = (),
        rows_per_task: int = ROWS_PER_TASK,
        gatherer: Gatherer | None = None,
        device_fields: Collection[str] = (),
    ) -> None:
        self.kernels = tuple(kernels)
        self.stops = tuple(stops)
        self.rows_per_task = rows_per_task
        self.gatherer = gatherer
        self.device_fields = frozenset(device_fields)
        """Fields that come into being on the back-end's device, and can be had there."""
        self._ops = [op for op, _ in kernels]
        self._steps: list[tuple[Kernel, slice]] = []
        start = 0
        for op, kernel in kernels:
            self._steps.append((kernel, slice(start, start + op.num_uniforms)))
            start += op.num_uniforms
        self.num_uniforms = start
        """Uniform numbers that one sample needs: those of the first op, then of the second, and so on."""
        self.prefix_length = prefix_length

    @property
    def prefix_ops(self) -> Sequence[Op]:
        """The ops before the cache; none without one."""
        return self._ops[: self.prefix_length]

    def uniforms(self, seed: int, epoch: int, samples: NDArray[np.int64]) -> NDArray[np.float64]:
        """The numbers that :meth:`run` needs for each sample: shape (len(samples), num_uniforms)."""
        drawn = [
            uniforms(seed, epoch, samples, op_index, op.num_uniforms)
            for op_index, op in enumerate(self._ops)
            if op.num_uniforms
        ]
        return np.concatenate(drawn, axis=1) if drawn else np.empty((len(samples), 0))

    def run(self, raw: RawSample, *, index: int, seed: int, epoch: int, uniforms: NDArray[np.float64]) -> Sample:
        """Run all ops on a fresh sample made of ``raw``; ``uniforms`` has ``num_uniforms`` entries.

        Raises SampleError, with op and origin, or Filtered. A field may still be a Deferred, which fails later.
        """
        sample = self.begin(raw, index=index, seed=seed, epoch=epoch, uniforms=uniforms)
        for stop_index in range(len(self.stops)):
            self.go_on(sample, uniforms, stop_index)
        return sample

    def begin(self, raw: RawSample, *, index: int, seed: int, epoch: int, uniforms: NDArray[np.float64]) -> Sample:
        """Run the ops before the first stop on a fresh sample, all where there is none. Raises as :meth:`run`."""
        sample = Sample(dict(raw.fields), raw.origin, index, seed, epoch)
        self._run(sample, uniforms, 0, self._end(0))
        return sample

    def go_on(self, sample: Sample, uniforms: NDArray[np.float64], stop_index: int) -> None:
        """Run the ops from a stop to the next one, or to the end. Raises as :meth:`run`."""
        self._run(sample, uniforms, self.stops[stop_index], self._end(stop_index + 1))

    def run_prefix(self, sample: Sample) -> None:
        """Run the ops before the cache on a sample. Raises as :meth:`run` does."""
        self._run(sample, _NO_UNIFORMS, 0, self.prefix_length)

    def run_suffix(self, sample: Sample, uniforms: NDArray[np.float64]) -> None:
        """Run the ops behind the cache; ``uniforms`` are those for :meth:`run`. Raises as that does."""
        self._run(sample, uniforms, self.prefix_length, len(self._steps))

    def begin_suffix(self, sample: Sample, uniforms: NDArray[np.float64]) -> None:
        """Run the ops from the cache to the first stop, as :meth:`begin` does."""
        self._run(sample, uniforms, self.prefix_length, self._end(0))

    def _end(self, stop_index: int) -> int:
        return self.stops[stop_index] if stop_index < len(self.stops) else len(self._steps)

    def _run(self, sample: Sample, uniforms: NDArray[np.float64], first: int, stop: int) -> None:
        step = first
        try:
            for step in range(first, stop):  # tells the handlers where it broke
                kernel, own = self._steps[step]
                kernel(sample, uniforms[own])
        except SampleError as error:
            error.op = error.op or self._ops[step].label
            raise error.at(sample.origin) from error.__cause__
        except KeyError as error:
            if not self._is_missing(self._ops[step], error, sample):
                raise
            present = ", ".join(sorted(sample.fields)) or "none"
            reason = f"no field {error.args[0]!r}; this sample has: {present}"
            raise SampleError(reason, op=self._ops[step].label, origin=sample.origin) from None

    @staticmethod
    def _is_missing(op: Op, error: KeyError, sample: Sample) -> bool:
        name = error.args[0] if error.args else None
        return name in (*op.reads, *op.needs_image) and name not in sample.fields
