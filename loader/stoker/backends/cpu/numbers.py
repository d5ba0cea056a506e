"""Kernels that turn pixels into the numbers a network expects."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.backends.cpu.packages import need
from stoker.backends.cpu.picture import picture
from stoker.backends.program import Kernel
from stoker.backends.registry import implements
from stoker.errors import SampleError
from stoker.ops.cast import Cast
from stoker.ops.normalize import Normalize
from stoker.ops.to_layout import ToLayout
from stoker.sample import Deferred, Sample, Write


class _Numbers:
    """A picture as float32, shifted and scaled, made when it is written. A Deferred."""

    def __init__(self, image: Deferred, scaling: _Scaling) -> None:
        self._image = image
        self._scaling = scaling
        self.shape = image.shape
        self.dtype = np.dtype(np.float32)

    def writer(self, out: NDArray[Any]) -> Write:
        """Prepare to fill ``out``."""
        return lambda: self._scaling.apply(self._image.array(), out)

    def array(self) -> NDArray[Any]:
        """Return the numbers as a new array."""
        out = np.empty(self.shape, self.dtype)
        self.writer(out)()
        return out


class _ChannelsFirst:
    """A picture whose channels come first, made when it is written. A Deferred."""

    def __init__(self, image: Deferred) -> None:
        self._image = image
        height, width, channels = image.shape
        self.shape = (channels, height, width)
        self.dtype = image.dtype

    def writer(self, out: NDArray[Any]) -> Write:
        """Prepare to fill ``out``."""
        if self.dtype == np.float16 or self.dtype.itemsize > 4:  # of those OpenCV knows not all
            return lambda: np.copyto(out, self._image.array().transpose(2, 0, 1))
        split, planes = need("cv2").split, list(out)
        return lambda: split(self._image.array(), planes)

    def array(self) -> NDArray[Any]:
        """Return the pixels as a new array."""
        out = np.empty(self.shape, self.dtype)
        self.writer(out)()
        return out


class _Converted:
    """A picture in another dtype, made when it is written. A Deferred."""

    def __init__(self, image: Deferred, dtype: np.dtype[Any]) -> None:
        self._image = image
        self.shape = image.shape
        self.dtype = dtype

    def writer(self, out: NDArray[Any]) -> Write:
        """Prepare to fill ``out``."""
        return lambda: np.copyto(out, self._image.array(), casting="unsafe")

    def array(self) -> NDArray[Any]:
        """Return the numbers as a new array."""
        return self._image.array().astype(self.dtype)


class _Scaling:
    """Mean and deviation of each channel, in the order of operations that torchvision has, in float32."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        self._mean = np.array(mean, np.float32)
        self._std = np.array(std, np.float32)
        levels = np.arange(256, dtype=np.uint8)[:, None]
        self._table = np.ascontiguousarray(self._numbers(np.repeat(levels, len(mean), axis=1))[None])

    def apply(self, pixels: NDArray[Any], out: NDArray[np.float32]) -> None:
        """Fill ``out`` with the numbers for these pixels."""
        if pixels.dtype == np.uint8 and pixels.shape[2] == len(self._mean):
            need("cv2").LUT(pixels, self._table, dst=out)
        else:
            np.copyto(out, self._numbers(pixels))

    def _numbers(self, pixels: NDArray[Any]) -> NDArray[np.float32]:
        numbers = pixels.astype(np.float32)
        if np.issubdtype(pixels.dtype, np.integer):
            numbers *= np.float32(1.0 / np.iinfo(pixels.dtype).max)
        numbers -= self._mean
        numbers /= self._std
        return numbers


@implements(Normalize)
def normalize(op: Normalize) -> Kernel:
    """Compute later, when the numbers are written."""
    need("cv2")
    scaling = _Scaling(op.mean, op.std)

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:  # noqa: ARG001  # draws nothing
        image = picture(sample, op.field)
        if len(op.mean) not in (1, image.shape[2]):
            raise SampleError(f"{len(op.mean)} means for a picture of {image.shape[2]} channels")
        sample.fields[op.field] = _Numbers(image, scaling)

    return kernel


@implements(ToLayout)
def to_layout(op: ToLayout) -> Kernel:
    """Move channels later, when the picture is written."""
    need("cv2")

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:  # noqa: ARG001  # draws nothing
        value = sample.fields[op.field]
        image = value if isinstance(value, _Numbers | _Converted) else picture(sample, op.field)
        sample.fields[op.field] = _ChannelsFirst(image) if op.layout == "NCHW" else image

    return kernel


@implements(Cast)
def cast(op: Cast) -> Kernel:
    """Change the dtype of a picture later, when it is written; bfloat16, which NumPy lacks, at once, as a tensor."""
    dtype = None if op.dtype == "bfloat16" else np.dtype(op.dtype)
    torch = need("torch") if dtype is None else None

    def kernel(sample: Sample, uniforms: NDArray[np.float64]) -> None:  # noqa: ARG001  # draws nothing
        value = sample.fields[op.field]
        if dtype is not None and isinstance(value, Deferred):
            sample.fields[op.field] = _Converted(value, dtype)
            return
        array = _numbers_of(value, op.field)
        if dtype is not None:
            sample.fields[op.field] = array.astype(dtype) if array.ndim else dtype.type(array)
        elif torch is not None:
            sample.fields[op.field] = torch.from_numpy(np.array(array)).to(torch.bfloat16)

    return kernel


def _numbers_of(value: Any, field: str) -> NDArray[Any]:
    """A value as an array. Raises SampleError for what holds no numbers."""
    array = value.array() if isinstance(value, Deferred) else np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise SampleError(f"field {field!r} holds {type(value).__name__}, not numbers")
    return array
