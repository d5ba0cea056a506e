"""A picture that is decoded, cropped, resized and mirrored in one go, when it is written into its place."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stoker.backends.cpu import resample
from stoker.backends.cpu.packages import need
from stoker.errors import SampleError
from stoker.ops.geometry import Window, whole
from stoker.ops.sampling import Sampling
from stoker.sample import Deferred, Sample, Write

Read = Callable[[], NDArray[Any]]
"""Gives pixels, height × width × channels; not to be changed, overwritten by the thread's next read."""


class Source(Protocol):
    """Where the pixels of a picture come from; owned by one thread."""

    size: tuple[int, int]
    """Height and width."""
    channels: int
    dtype: np.dtype[Any]

    def reader(self, window: Window) -> Read:
        """Prepare to read a window; to be called in the same thread. The call raises SampleError if the file is bad."""
        ...


class ArraySource:
    """Pixels that are there already."""

    def __init__(self, pixels: NDArray[Any]) -> None:
        self.pixels = pixels
        self.size = (pixels.shape[0], pixels.shape[1])
        self.channels = pixels.shape[2]
        self.dtype = pixels.dtype

    def reader(self, window: Window) -> Read:
        """Prepare a view of a window."""
        part = self.pixels[window.top : window.bottom, window.left : window.right]
        return lambda: part


class DeferredSource:
    """Pixels that something else makes, or fails to, when they are read."""

    def __init__(self, value: Deferred) -> None:
        self._value = value
        self.size = (value.shape[0], value.shape[1])
        self.channels = value.shape[2]
        self.dtype = value.dtype

    def reader(self, window: Window) -> Read:
        """Prepare to make all and take a window."""
        return lambda: self._value.array()[window.top : window.bottom, window.left : window.right]


class _Plan(NamedTuple):
    """What is still to be done, in this order: crop, resize, crop again, mirror."""

    window: Window
    size: tuple[int, int] | None = None
    sampling: Sampling | None = None
    trim: Window | None = None
    horizontal: bool = False
    vertical: bool = False

    @property
    def result(self) -> tuple[int, int]:
        """Height and width when all is done."""
        if self.trim is not None:
            return self.trim.height, self.trim.width
        return self.size or (self.window.height, self.window.width)


class Picture:
    """A picture as an op sees it: height × width × channels, not yet made. A Deferred, never changed, of one thread."""

    __slots__ = ("_plan", "_source")

    def __init__(self, source: Source, plan: _Plan | None = None) -> None:
        self._source = source
        self._plan = plan or _Plan(whole(*source.size))

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self._plan.result

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self._plan.result, self._source.channels)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._source.dtype

    @property
    def untouched_source(self) -> Source | None:
        """Where the pixels come from, if nothing is to be done to them."""
        return self._source if self._plan == _Plan(whole(*self._source.size)) else None

    def crop(self, window: Window) -> Picture:
        """The part inside ``window``, which must lie in the picture."""
        plan = self._plan
        stored = window
        if plan.horizontal or plan.vertical:
            stored = window.mirrored(*plan.result, horizontal=plan.horizontal, vertical=plan.vertical)
        if plan.size is None:
            inner = stored.inside(plan.window)
            return Picture(self._source, _Plan(inner, None, None, None, plan.horizontal, plan.vertical))
        trim = stored if plan.trim is None else stored.inside(plan.trim)
        return Picture(self._source, plan._replace(trim=trim))

    def resize(self, size: tuple[int, int], sampling: Sampling) -> Picture:
        """The picture at another height and width."""
        plan = self._plan
        if size == plan.result:
            return self
        if plan.size is not None or plan.horizontal or plan.vertical:
            return Picture(ArraySource(self.array())).resize(size, sampling)
        return Picture(self._source, _Plan(plan.window, size, sampling))

    def flip(self, *, horizontal: bool = False, vertical: bool = False) -> Picture:
        """The picture mirrored left for right, top for bottom, or both."""
        plan = self._plan
        mirrored = plan._replace(horizontal=plan.horizontal != horizontal, vertical=plan.vertical != vertical)
        return Picture(self._source, mirrored)

    def writer(self, out: NDArray[Any]) -> Write:
        """Prepare to make the pixels in ``out``: this shape and dtype, C-contiguous. To be called in this thread.

        The call raises SampleError if the file is bad. It runs little Python code of its own: what can be worked out
        beforehand was, while that code was in the core's caches.
        """
        plan = self._plan
        read, place = self._source.reader(plan.window), self._placer(out)
        if not (plan.horizontal or plan.vertical):
            return lambda: place(read())
        flip, code = need("cv2").flip, -1 if plan.horizontal and plan.vertical else int(plan.horizontal)

        def write() -> None:
            place(read())
            flip(out, code, dst=out)

        return write

    def _placer(self, out: NDArray[Any]) -> Callable[[NDArray[Any]], None]:
        """Prepare to resize and trim what was read."""
        plan, channels, dtype = self._plan, self._source.channels, self._source.dtype
        if plan.size is None or plan.sampling is None:
            return functools.partial(np.copyto, out)
        shape = (plan.window.height, plan.window.width, channels)
        if plan.trim is None:
            return resample.resizer(shape, out, plan.sampling)
        resized = np.empty((*plan.size, channels), dtype)
        resize = resample.resizer(shape, resized, plan.sampling)
        part = resized[plan.trim.top : plan.trim.bottom, plan.trim.left : plan.trim.right]

        def place(pixels: NDArray[Any]) -> None:
            resize(pixels)
            np.copyto(out, part)

        return place

    def array(self) -> NDArray[Any]:
        """Return the pixels as an array that is the caller's to keep and to change."""
        out = np.empty(self.shape, self.dtype)
        self.writer(out)()
        return out


def picture(sample: Sample, field: str) -> Picture:
    """Return a field as a picture. Raises KeyError without it, SampleError if it is none."""
    value = sample.fields[field]
    if isinstance(value, Picture):
        return value
    if not isinstance(value, np.ndarray) and isinstance(value, Deferred) and len(value.shape) == 3:
        return Picture(DeferredSource(value))
    return Picture(ArraySource(pixels(sample, field)))


def pixels(sample: Sample, field: str) -> NDArray[Any]:
    """Return the pixels of a field, height × width × channels, to be read only. Raises as :func:`picture` does."""
    value = sample.fields[field]
    if isinstance(value, Deferred):
        return value.array()
    if isinstance(value, np.ndarray) and value.ndim in (2, 3):
        return value if value.ndim == 3 else value[..., None]
    raise SampleError(f"field {field!r} holds {type(value).__name__}, not a picture (height × width × channels)")
