"""NumPy arrays as their bytes, with their strides; maps of files as the names of the files."""

from __future__ import annotations

import mmap
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.processes.raw_memory import bytes_at


def reduce_array(array: NDArray[Any]) -> Any:
    """What to pickle of an array; NotImplemented: what NumPy or a subclass says."""
    if type(array) not in (np.ndarray, np.memmap) or array.dtype.hasobject or array.size == 0:
        return NotImplemented
    if (mapped := _reduce_mapped(array)) is not None:
        return mapped
    low, high = _extent(array)
    if high - low > array.nbytes:  # with gaps: rows of a larger array, every tenth element
        array = np.array(array, order="K")
        low, high = _extent(array)
    strides = None if array.flags.c_contiguous else array.strides
    address = _address(array)
    content = bytes_at(address + low, high - low, owner=array, read_only=not array.flags.writeable)
    buffer = pickle.PickleBuffer(content)  # type: ignore[arg-type]  # which it takes
    return make_array, (buffer, array.dtype, array.shape, -low, strides)


def make_array(buffer: Any, dtype: Any, shape: Any, first: int, strides: Any) -> NDArray[Any]:
    """Lay an array over the bytes; ``first``: where its first element is."""
    return np.ndarray(shape, dtype, buffer, first, strides)


def _reduce_mapped(array: NDArray[Any]) -> Any:
    """A file that still is there is mapped anew by each process, in the same mode."""
    base: Any = array
    while type(base) is np.ndarray:
        base = base.base
    file, memory = getattr(base, "filename", None), getattr(base, "_mmap", None)
    if type(base) is not np.memmap or file is None or not isinstance(memory, mmap.mmap):
        return None
    low, high = _extent(array)
    start = _file_position(array, base, memory) + low
    try:
        if Path(file).stat().st_size < start + high - low:
            return None
    except OSError:
        return None
    mode = "r+" if base.mode == "w+" else base.mode
    place = (start, high - low, -low)
    return map_array, (
        (file, mode, type(array) is np.memmap, array.flags.writeable),
        place,
        (array.dtype, array.shape, array.strides),
    )


def map_array(file: Any, place: Any, form: Any) -> NDArray[Any]:
    """Map the bytes of a file, and lay an array over them."""
    path, mode, is_memmap, is_writeable = file
    start, num_bytes, first = place
    dtype, shape, strides = form
    whole: Any = np.memmap(path, np.uint8, mode, start, (num_bytes,))
    array: Any = np.ndarray.__new__(np.memmap if is_memmap else np.ndarray, shape, dtype, whole, first, strides)
    if is_memmap:
        array._mmap, array.filename, array.offset, array.mode = whole._mmap, whole.filename, start, mode
    if not is_writeable:
        array.flags.writeable = False
    return array  # type: ignore[no-any-return]


def _file_position(array: NDArray[Any], base: Any, memory: mmap.mmap) -> int:
    mapped: NDArray[np.uint8] = np.frombuffer(memory, np.uint8)
    mapped_from = int(base.offset) - int(base.offset) % mmap.ALLOCATIONGRANULARITY
    return mapped_from + _address(array) - _address(mapped)


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _extent(array: NDArray[Any]) -> tuple[int, int]:
    """Where the bytes of an array lie, from its first element: negative strides go below."""
    reaches = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    low = sum(reach for reach in reaches if reach < 0)
    return low, sum(reach for reach in reaches if reach > 0) + array.itemsize
