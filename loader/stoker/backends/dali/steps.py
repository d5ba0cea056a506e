"""What DALI does to a picture, one operator or a few at a time; numbers that differ between samples are ours."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np

from stoker.backends.cpu.mel import LEAST, hann
from stoker.ops.mel_spectrogram import MelSpectrogram
from stoker.ops.sampling import Interpolation

Node = Any
"""A ``nvidia.dali.data_node.DataNode``: a value of the graph, which is one array for each sample."""


def library(name: str) -> Any:
    """A module of DALI, which is there when a graph is made."""
    return importlib.import_module(f"nvidia.dali.{name}")


class Argument(NamedTuple):
    """A number or array that each sample brings for a step: the dtype and the number of dimensions."""

    dtype: type[np.generic]
    ndim: int


Arguments: TypeAlias = tuple[Argument, ...]


class Step(Protocol):
    """A part of a graph. Equal steps make equal parts; what differs between samples comes as ``arguments``."""

    @property
    def arguments(self) -> Arguments: ...

    def add(self, x: Node, arguments: Sequence[Node]) -> Node:
        """Continue the graph from ``x``, a picture, height × width × channels."""
        ...


class Placed(NamedTuple):
    """A step, and whether it is done on the GPU even if what comes before it is not."""

    step: Step
    on_gpu: bool


@dataclass(frozen=True, slots=True)
class Cut:
    """A window, which may reach beyond the picture: there lies ``fill``. Arguments: (top, left), (height, width)."""

    fill: float | tuple[float, ...] = 0
    arguments: ClassVar[Arguments] = (Argument(np.int32, 1), Argument(np.int32, 1))

    def add(self, x: Node, arguments: Sequence[Node]) -> Node:
        fn = library("fn")
        start, shape = arguments
        return fn.slice(x, start=start, shape=shape, axes=(0, 1), out_of_bounds_policy="pad", fill_values=self.fill)


@dataclass(frozen=True, slots=True)
class Scale:
    """Another size. Argument: (height, width)."""

    interpolation: Interpolation
    antialias: bool
    arguments: ClassVar[Arguments] = (Argument(np.float32, 1),)

    def add(self, x: Node, arguments: Sequence[Node]) -> Node:
        fn, types = library("fn"), library("types")
        kinds = {"nearest": types.INTERP_NN, "bilinear": types.INTERP_LINEAR, "bicubic": types.INTERP_CUBIC}
        (size,) = arguments
        return fn.resize(x, size=size, interp_type=kinds[self.interpolation], antialias=self.antialias)


@dataclass(frozen=True, slots=True)
class Mirror:
    """Mirrored left for right, top for bottom. Arguments: 1 or 0 for each."""

    arguments: ClassVar[Arguments] = (Argument(np.int32, 0), Argument(np.int32, 0))

    def add(self, x: Node, arguments: Sequence[Node]) -> Node:
        fn = library("fn")
        horizontal, vertical = arguments
        return fn.flip(x, horizontal=horizontal, vertical=vertical)


_LUMA = (0.299, 0.587, 0.114)
"""ITU-R 601-2, as Pillow."""


@dataclass(frozen=True, slots=True)
class Blend:
    """``matrix`` times each pixel, plus ``share`` times the picture's mean brightness, cut to whole numbers.

    That is Pillow's brightness, contrast and saturation. Arguments: the matrix, channels × channels, and where
    ``has_mean`` is true, ``share`` times the unit matrix.
    """

    channels: int
    has_mean: bool

    @property
    def arguments(self) -> Arguments:
        return (Argument(np.float32, 2),) * (2 if self.has_mean else 1)

    def add(self, x: Node, arguments: Sequence[Node]) -> Node:
        fn, math, types = library("fn"), library("math"), library("types")
        matrix, *share = arguments
        mixed = fn.coord_transform(x, M=matrix, dtype=types.FLOAT)
        if share:
            mean = fn.reductions.mean(x, axes=[0, 1], keep_dims=True, dtype=types.FLOAT)
            weights = np.array([_LUMA] * 3 if self.channels == 3 else [[1.0]], np.float32)
            grey = math.floor(fn.coord_transform(mean, M=weights.ravel().tolist()) + 0.5)
            mixed = mixed + fn.coord_transform(grey, M=share[0])
        return fn.cast(math.floor(math.clamp(mixed, 0.0, 255.0)), dtype=types.UINT8)

    def values(self, adjustment: str, factor: float) -> tuple[Any, ...]:
        """The arguments for an adjustment by Pillow's factor."""
        channels = self.channels
        unit = np.eye(channels, dtype=np.float32)
        matrix, share = unit * np.float32(factor), unit * np.float32(0)
        if adjustment == "contrast":
            share = unit * np.float32(1 - factor)
        elif adjustment == "saturation":
            grey = np.array([_LUMA] * 3, np.float32) if channels == 3 else unit
            matrix = matrix + grey * np.float32(1 - factor)
        return (matrix, share) if self.has_mean else (matrix,)


@dataclass(frozen=True, slots=True)
class Blur:
    """A Gaussian of ``size`` (height, width) taps. Argument: its deviation."""

    size: tuple[int, int]
    arguments: ClassVar[Arguments] = (Argument(np.float32, 0),)

    def add(self, x: Node, arguments: Sequence[Node]) -> Node:
        fn = library("fn")
        (sigma,) = arguments
        return fn.gaussian_blur(x, sigma=sigma, window_size=list(self.size))


@dataclass(frozen=True, slots=True)
class Fill:
    """A rectangle filled with ``value``. Arguments: (top, left) and (height, width), of which 0 × 0 is none."""

    value: float | tuple[float, ...]
    arguments: ClassVar[Arguments] = (Argument(np.float32, 1), Argument(np.float32, 1))

    def add(self, x: Node, arguments: Sequence[Node]) -> Node:
        fn = library("fn")
        anchor, shape = arguments
        return fn.erase(x, anchor=anchor, shape=shape, axes=(0, 1), fill_value=self.value)


@dataclass(frozen=True, slots=True)
class Standardize:
    """Minus ``mean``, divided by ``std``, one of each for each channel, as float32, where ``white`` counts as 1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    white: float
    arguments: ClassVar[Arguments] = ()

    def add(self, x: Node, arguments: Sequence[Node]) -> Node:  # noqa: ARG002  # all steps'
        fn, types = library("fn"), library("types")
        mean, std = (np.array([[each]], np.float64) * self.white for each in (self.mean, self.std))
        return fn.normalize(
            x, mean=mean.astype(np.float32), stddev=std.astype(np.float32), axes=[0, 1], dtype=types.FLOAT
        )


@dataclass(frozen=True, slots=True)
class ChannelsFirst:
    """Channels × height × width."""

    arguments: ClassVar[Arguments] = ()

    def add(self, x: Node, arguments: Sequence[Node]) -> Node:  # noqa: ARG002  # all steps'
        fn = library("fn")
        return fn.transpose(x, perm=[2, 0, 1])


@dataclass(frozen=True, slots=True)
class To:
    """The same numbers as ``dtype``."""

    dtype: str
    arguments: ClassVar[Arguments] = ()

    def add(self, x: Node, arguments: Sequence[Node]) -> Node:  # noqa: ARG002  # all steps'
        return library("fn").cast(x, dtype=library("types").to_dali_type(self.dtype))


@dataclass(frozen=True, slots=True)
class Mel:
    """The mel spectrogram of a wave: bands × windows."""

    op: MelSpectrogram
    arguments: ClassVar[Arguments] = ()

    def add(self, x: Node, arguments: Sequence[Node]) -> Node:  # noqa: ARG002  # all steps'
        fn, math, op = library("fn"), library("math"), self.op
        spectrum = fn.spectrogram(
            x,
            nfft=op.n_fft,
            window_length=op.n_fft,
            window_step=op.hop_length,
            window_fn=hann(op).tolist(),
            power=op.power,
            center_windows=True,
            reflect_padding=True,
        )
        mel = fn.mel_filter_bank(
            spectrum,
            sample_rate=float(op.rate),
            nfilter=op.n_mels,
            freq_low=op.f_min,
            freq_high=op.highest,
            mel_formula=op.scale,
            normalize=op.norm,
        )
        if not op.decibels:
            return mel
        factor = 10.0 if op.power == 2 else 20.0
        loud = fn.to_decibels(mel, multiplier=factor, reference=1.0, cutoff_db=factor * np.log10(LEAST))
        return math.max(loud, fn.reductions.max(loud, axes=[0, 1], keep_dims=True) - op.top_db)
