"""A picture as the ops see it, before DALI makes it together with others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stoker.backends.cpu.picture import ArraySource, DeferredSource, Picture, Read, Source, pixels
from stoker.backends.dali.steps import Cut, Placed, Step
from stoker.errors import SampleError
from stoker.ops.geometry import Window, whole
from stoker.sample import Deferred, Sample

if TYPE_CHECKING:
    from stoker.backends.dali.runner import Runner


@dataclass(frozen=True, slots=True)
class DaliPicture:
    """A window of what a source of the ``cpu`` back-end gives, and the steps that follow. A Deferred, never changed.

    ``values`` has, for each step of the ``chain``, the numbers that this picture brings.
    """

    runner: Runner
    source: Source
    window: Window
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chain: tuple[Placed, ...] = ()
    values: tuple[tuple[Any, ...], ...] = ()

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.shape[0], self.shape[1]

    def cropped(self, window: Window, *, on_gpu: bool) -> DaliPicture:
        """The part inside ``window``; what lies beyond the picture is 0."""
        is_inside = (
            window.top >= 0 and window.left >= 0 and window.bottom <= self.shape[0] and window.right <= self.shape[1]
        )
        if is_inside and not self.chain:
            shape = (window.height, window.width, self.shape[2])
            return replace(self, window=window.inside(self.window), shape=shape)
        start, size = (window.top, window.left), (window.height, window.width)
        return self.then(Cut(), (start, size), on_gpu=on_gpu, size=size)

    def then(
        self,
        step: Step,
        values: tuple[Any, ...] = (),
        *,
        on_gpu: bool,
        size: tuple[int, int] | None = None,
        shape: tuple[int, ...] | None = None,
        dtype: np.dtype[Any] | None = None,
    ) -> DaliPicture:
        """The picture after a step, which changes its size, shape or dtype as told."""
        return replace(
            self,
            shape=shape or ((*size, self.shape[2]) if size else self.shape),
            dtype=dtype or self.dtype,
            chain=(*self.chain, Placed(step, on_gpu)),
            values=(*self.values, values),
        )

    def writer(self, out: NDArray[Any]) -> DaliWrite:
        """Prepare to make the pixels in ``out``, alone or, by the gatherer, with others."""
        return DaliWrite(self, out)

    def tensor_writer(self, out: Any) -> DaliWrite:
        """See :class:`stoker.batch.device_rows.DeviceDeferred`."""
        return DaliWrite(self, out)

    def array(self) -> NDArray[Any]:
        """Return the pixels as a new array. Raises SampleError if the file is bad."""
        out = np.empty(self.shape, self.dtype)
        self.writer(out)()
        return out


@dataclass(frozen=True, slots=True)
class DaliWrite:
    """Makes a picture in its place: an array, or a row of a torch tensor on a device."""

    picture: DaliPicture
    out: Any

    def __call__(self) -> None:
        (error,) = self.picture.runner.make([self])
        if error is not None:
            raise error


class WaveSource:
    """A wave of one channel, float32, as a source of pixels one column wide."""

    channels = 1
    dtype = np.dtype(np.float32)

    def __init__(self, wave: NDArray[np.float32]) -> None:
        self._wave = wave
        self.size = len(wave), 1

    def reader(self, window: Window) -> Read:  # noqa: ARG002  # there is but the whole
        """The wave, of one dimension."""
        return lambda: self._wave


def dali_picture(runner: Runner, sample: Sample, field: str) -> DaliPicture:
    """Return a field as a picture for DALI. Raises KeyError without it, SampleError if it is none."""
    value = sample.fields[field]
    if isinstance(value, DaliPicture):
        return value
    source = _source(value)
    if source is None:
        source = ArraySource(pixels(sample, field))
    return of_source(runner, source)


def of_source(runner: Runner, source: Source) -> DaliPicture:
    """The whole of what a source gives."""
    return DaliPicture(runner, source, whole(*source.size), (*source.size, source.channels), source.dtype)


def _source(value: Any) -> Source | None:
    if isinstance(value, Picture):
        return value.untouched_source or DeferredSource(value)
    if not isinstance(value, np.ndarray) and isinstance(value, Deferred):
        if len(value.shape) != 3:
            raise SampleError(f"expected a picture (height × width × channels), found the shape {value.shape}")
        return DeferredSource(value)
    return None
