"""Arrays and Arrow buffers in the pickles of results."""

from __future__ import annotations

import ctypes
import pickle
from typing import Any, Final

import numpy as np
import pyarrow as pa

from stoker.processes.results.outgoing import LARGE_BYTES, Outgoing, address_of

PLACED: Final = pickle.PickleBuffer(bytearray())  # of bytes, and what stands for it could not be written to
"""Stands in a pickle for the buffer that was just added to an :class:`Outgoing`."""

_NAMES: Final = {np.dtype(code): np.dtype(code).str for code in "?bBhHiIlLqQefdgFDG"}  # much shorter than a dtype


def reduce_array(array: np.ndarray[Any, Any], out: Outgoing) -> Any:
    """Reduce an array of numbers to the bytes it shows and its form; others as NumPy does.

    The order of the dimensions in memory stays; gaps between elements do not. Read-only arrays stay read-only.
    """
    dtype = array.dtype
    if dtype.hasobject or not dtype.itemsize:
        return NotImplemented
    is_writable = array.flags.writeable
    strides = None
    num_bytes = array.nbytes
    if not array.flags.c_contiguous:
        shown = _shown_bytes(array)
        if shown is None:
            array = array.copy()
        else:
            strides, num_bytes = array.strides, shown
    if num_bytes < LARGE_BYTES:
        found = array.tobytes() if strides is None else ctypes.string_at(address_of(array), num_bytes)
        place = bytearray(found) if is_writable else found
        return build_array, (place, _NAMES.get(dtype, dtype), array.shape, strides)
    out.add(address_of(array), num_bytes, array)
    return build_array, (PLACED, _NAMES.get(dtype, dtype), array.shape, strides, not is_writable)


def build_array(
    place: Any, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None = None, read_only: bool = False
) -> np.ndarray[Any, Any]:
    """Make the array that :func:`reduce_array` took apart, over the memory of ``place``."""
    array: np.ndarray[Any, Any] = np.ndarray(shape, dtype, place, 0, strides)
    if read_only:
        array.flags.writeable = False
    return array


def _shown_bytes(array: np.ndarray[Any, Any]) -> int | None:
    """How far an array's bytes reach from its first element; None if some before or between are not its own."""
    if not array.size or min(array.strides) < 0:
        return None
    pairs = zip(array.shape, array.strides, strict=True)
    reach = array.itemsize + sum((size - 1) * stride for size, stride in pairs)
    return reach if reach <= array.nbytes else None


def reduce_buffer(buffer: pa.Buffer, out: Outgoing) -> Any:
    """Reduce an Arrow buffer to its bytes; whether it could be written to does not matter: the copy can."""
    if not buffer.is_cpu:
        return NotImplemented
    if buffer.size < LARGE_BYTES:
        return pa.py_buffer, (bytearray(buffer),)
    out.add(buffer.address, buffer.size, buffer)
    return pa.py_buffer, (PLACED,)
