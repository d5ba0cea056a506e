"""Kernels that note what DALI is to do. Each takes its windows and factors from the op, as those of ``cpu`` do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.backends.cpu.audio import mel_wave
from stoker.backends.cpu.decode import decode_image as decode_on_cpu
from stoker.backends.cpu.picture import picture as cpu_picture
from stoker.backends.dali.picture import DaliPicture, WaveSource, dali_picture, of_source
from stoker.backends.dali.runner import Runner
from stoker.backends.dali.steps import Blend, Blur, ChannelsFirst, Cut, Fill, Mel, Mirror, Scale, Standardize, To
from stoker.backends.program import Kernel
from stoker.errors import SampleError
from stoker.ops.cast import Cast
from stoker.ops.center_crop import CenterCrop
from stoker.ops.color_jitter import ColorJitter
from stoker.ops.decode_image import DecodeImage
from stoker.ops.gaussian_blur import GaussianBlur
from stoker.ops.geometry import pair
from stoker.ops.image_op import ImageOp
from stoker.ops.mel_spectrogram import MelSpectrogram
from stoker.ops.normalize import Normalize
from stoker.ops.op import Op
from stoker.ops.pad import Pad
from stoker.ops.random_erasing import RandomErasing
from stoker.ops.random_horizontal_flip import RandomHorizontalFlip
from stoker.ops.random_resized_crop import RandomResizedCrop
from stoker.ops.random_vertical_flip import RandomVerticalFlip
from stoker.ops.resize import Resize
from stoker.ops.to_layout import ToLayout
from stoker.sample import Sample

Change = Callable[[DaliPicture, list[float]], DaliPicture | None]
"""What an op makes of a picture, given its uniforms; None if DALI has no such thing for this picture."""

_BYTES = np.dtype(np.uint8)
_FLOATS = np.dtype(np.float32)


def dali_kernel(op: Op, runner: Runner, on_cpu: Kernel) -> Kernel | None:
    """The kernel of an op; None if DALI cannot do it. ``on_cpu`` does it for pictures that DALI cannot do it for."""
    if isinstance(op, DecodeImage):
        return _decode(op, runner)
    if isinstance(op, Cast):
        return _cast(op, runner, on_cpu)
    if isinstance(op, MelSpectrogram):
        return _mel_spectrogram(op, runner, on_cpu)
    found = _CHANGES.get(type(op))
    if found is None or not isinstance(op, ImageOp):
        return None
    change = found(op, runner.backend.place_of(type(op).__name__) != "cpu")
    if change is None:
        return None
    field, own = op.field, change

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:
        changed = own(dali_picture(runner, sample, field), uniforms.tolist())
        if changed is None:
            on_cpu(sample, uniforms)
        else:
            sample.fields[field] = changed

    return kernel


def _decode(op: DecodeImage, runner: Runner) -> Kernel:
    """Look at the file as the cpu back-end does; who decodes it is decided when its pixels are made."""
    look, target = decode_on_cpu(op), op.target

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:
        look(sample, uniforms)
        source = cpu_picture(sample, target).untouched_source
        assert source is not None, "nothing was done to it yet"
        sample.fields[target] = of_source(runner, source)

    return kernel


def _scale(op: RandomResizedCrop | Resize) -> Scale | None:
    """DALI's cubic is Pillow's; torch's plain one, which is meant without ``antialias``, has another coefficient."""
    if op.interpolation == "bicubic" and not op.antialias:
        return None
    return Scale(op.interpolation, op.antialias)


def _cast(op: Cast, runner: Runner, on_cpu: Kernel) -> Kernel | None:
    """To a float, of what DALI makes; to whole numbers DALI rounds."""
    if op.dtype not in ("float16", "float32", "float64"):
        return None
    on_gpu, step, dtype = runner.backend.place_of("Cast") != "cpu", To(op.dtype), np.dtype(op.dtype)

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:
        value = sample.fields[op.field]
        if isinstance(value, DaliPicture):
            sample.fields[op.field] = value.then(step, on_gpu=on_gpu, dtype=dtype)
        else:
            on_cpu(sample, uniforms)

    return kernel


def _mel_spectrogram(op: MelSpectrogram, runner: Runner, on_cpu: Kernel) -> Kernel:
    """Of waves of one channel."""
    on_gpu, step = runner.backend.place_of("MelSpectrogram") != "cpu", Mel(op)

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:
        wave = mel_wave(sample, op)
        if wave.ndim != 1:
            on_cpu(sample, uniforms)
            return
        whole = of_source(runner, WaveSource(wave))
        shape = op.n_mels, op.num_windows(len(wave))
        sample.fields[op.field] = whole.then(step, on_gpu=on_gpu, shape=shape)

    return kernel


def _random_resized_crop(op: RandomResizedCrop, on_gpu: bool) -> Change | None:
    scale, size = _scale(op), pair(op.size)
    if scale is None:
        return None

    def change(image: DaliPicture, uniforms: list[float]) -> DaliPicture:
        window = op.window(*image.size, uniforms)
        return image.cropped(window, on_gpu=on_gpu).then(scale, (size,), on_gpu=on_gpu, size=size)

    return change


def _resize(op: Resize, on_gpu: bool) -> Change | None:
    scale = _scale(op)
    if scale is None:
        return None

    def change(image: DaliPicture, uniforms: list[float]) -> DaliPicture:  # noqa: ARG001  # draws nothing
        size = op.output_size(*image.size)
        return image.then(scale, (size,), on_gpu=on_gpu, size=size)

    return change


def _center_crop(op: CenterCrop, on_gpu: bool) -> Change:
    def change(image: DaliPicture, uniforms: list[float]) -> DaliPicture:  # noqa: ARG001  # draws nothing
        height, width = image.size
        left, top, right, bottom = op.padding(height, width)
        window = op.window(height + top + bottom, width + left + right)
        return image.cropped(window._replace(top=window.top - top, left=window.left - left), on_gpu=on_gpu)

    return change


def _pad(op: Pad, on_gpu: bool) -> Change | None:
    if op.padding_mode != "constant":
        return None
    left, top, right, bottom = op.sides
    cut = Cut(op.fill)

    def change(image: DaliPicture, uniforms: list[float]) -> DaliPicture | None:  # noqa: ARG001  # draws nothing
        if isinstance(op.fill, tuple) and len(op.fill) != image.shape[2]:
            return None
        size = image.shape[0] + top + bottom, image.shape[1] + left + right
        return image.then(cut, ((-top, -left), size), on_gpu=on_gpu, size=size)

    return change


def _flip(op: RandomHorizontalFlip | RandomVerticalFlip, on_gpu: bool) -> Change:
    is_horizontal = isinstance(op, RandomHorizontalFlip)

    def change(image: DaliPicture, uniforms: list[float]) -> DaliPicture:
        flips = int(op.flips(uniforms))
        return image.then(Mirror(), (flips, 0) if is_horizontal else (0, flips), on_gpu=on_gpu)

    return change


def _color_jitter(op: ColorJitter, on_gpu: bool) -> Change | None:
    """All but the hue, which Pillow turns in HSV and DALI in YIQ."""
    if op.hue not in (0, (0, 0), (0.0, 0.0)):
        return None
    has_mean = op.contrast not in (0, (0, 0), (0.0, 0.0))

    def change(image: DaliPicture, uniforms: list[float]) -> DaliPicture | None:
        channels = image.shape[2]
        if image.dtype != _BYTES or channels not in (1, 3):
            return None
        for step in op.steps(uniforms):
            blend = Blend(channels, has_mean)
            image = image.then(blend, blend.values(step.adjustment, step.amount), on_gpu=on_gpu)
        return image

    return change


def _blur(op: GaussianBlur, on_gpu: bool) -> Change:
    blur = Blur(pair(op.kernel_size))

    def change(image: DaliPicture, uniforms: list[float]) -> DaliPicture | None:
        return image.then(blur, (op.deviation(uniforms),), on_gpu=on_gpu)

    return change


def _erase(op: RandomErasing, on_gpu: bool) -> Change | None:
    if op.value == "random":
        return None
    fill = Fill(op.value)

    def change(image: DaliPicture, uniforms: list[float]) -> DaliPicture | None:
        if isinstance(op.value, tuple) and len(op.value) != image.shape[2]:
            return None
        window = op.window(*image.size, uniforms)
        place = ((window.top, window.left), (window.height, window.width)) if window else ((0, 0), (0, 0))
        return image.then(fill, place, on_gpu=on_gpu)

    return change


def _normalize(op: Normalize, on_gpu: bool) -> Change:
    def change(image: DaliPicture, uniforms: list[float]) -> DaliPicture | None:  # noqa: ARG001  # draws nothing
        channels = image.shape[2]
        if len(op.mean) not in (1, channels):
            raise SampleError(f"{len(op.mean)} means for a picture of {channels} channels")
        mean, std = (each * (channels // len(op.mean)) for each in (op.mean, op.std))
        white = float(np.iinfo(image.dtype).max) if np.issubdtype(image.dtype, np.integer) else 1.0
        return image.then(Standardize(mean, std, white), on_gpu=on_gpu, dtype=_FLOATS)

    return change


def _to_layout(op: ToLayout, on_gpu: bool) -> Change:
    def change(image: DaliPicture, uniforms: list[float]) -> DaliPicture:  # noqa: ARG001  # draws nothing
        height, width, channels = image.shape
        if op.layout != "NCHW":
            return image
        return image.then(ChannelsFirst(), on_gpu=on_gpu, shape=(channels, height, width))

    return change


_CHANGES: dict[type[Op], Callable[[Any, bool], Change | None]] = {
    CenterCrop: _center_crop,
    ColorJitter: _color_jitter,
    GaussianBlur: _blur,
    Normalize: _normalize,
    Pad: _pad,
    RandomErasing: _erase,
    RandomHorizontalFlip: _flip,
    RandomResizedCrop: _random_resized_crop,
    RandomVerticalFlip: _flip,
    Resize: _resize,
    ToLayout: _to_layout,
}
