"""libjpeg-turbo 3's own interface, for decoding a part of a picture.

No Python package offers it, but shared libraries with it are there: the system's, or the one inside ``pylibjxl``,
which exports it. One that gives other pixels than simplejpeg for a test picture is not used.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from stoker.backends.cpu.packages import need
from stoker.errors import SampleError
from stoker.ops.geometry import Window

_DECOMPRESS = 1
_PIXEL_FORMATS = {1: 6, 3: 0}
"""TJPF_GRAY, TJPF_RGB by number of channels."""
_KEPT_BYTES = 16 << 20
_SYSTEM_NAMES = ("libturbojpeg.so.0", "libturbojpeg.dylib")
_CARRIERS = (("pylibjxl", "_pylibjxl*.so"),)


class _Region(ctypes.Structure):
    _fields_ = (("x", ctypes.c_int), ("y", ctypes.c_int), ("w", ctypes.c_int), ("h", ctypes.c_int))


class Turbo:
    """The functions of one shared library; safe in many threads, each of which gets a decoder of its own."""

    def __init__(self, path: str) -> None:
        """Raises OSError if there is no such library, AttributeError if it is older than version 3."""
        handle, address, whole_number = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int
        # A call that takes a microsecond keeps the GIL: to get it back would take longer.
        quick, slow = ctypes.PyDLL(path), ctypes.CDLL(path)

        def declared(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
            return cast(Callable[..., Any], function)

        self._parse = declared(quick, "tj3DecompressHeader", whole_number, handle, address, ctypes.c_size_t)
        self._set_region = declared(quick, "tj3SetCroppingRegion", whole_number, handle, _Region)
        self._decode = declared(
            slow, "tj3Decompress8", whole_number, handle, address, ctypes.c_size_t, address, whole_number, whole_number
        )
        self._error_text = declared(quick, "tj3GetErrorStr", ctypes.c_char_p, handle)
        create = declared(quick, "tj3Init", handle, whole_number)
        destroy = declared(quick, "tj3Destroy", None, handle)
        self._mine = _PerThread(create, destroy)

    def reader(self, file: bytes | memoryview, region: Window, channels: int) -> Callable[[], NDArray[np.uint8]]:
        """Prepare to decode a region, whose left edge lies on an MCU's: height × width × ``channels``, 1 or 3.

        To be called in this thread; the result is overwritten by the thread's next decoding. The call raises
        SampleError with the library's words for any damage up to the region's last row, and for a kind of JPEG that it
        cannot decode in part.
        """
        mine = self._mine.decoder
        top, left, height, width = region
        num_bytes = height * width * channels
        memory, out_address = mine.memory(num_bytes)
        out = memory[:num_bytes].reshape(height, width, channels)
        encoded = np.frombuffer(file, np.uint8)
        address, size, area, pixel_format = (
            address_of(encoded),
            len(file),
            _Region(left, top, width, height),
            _PIXEL_FORMATS[channels],
        )
        parse, set_region, decode = self._parse, self._set_region, self._decode

        def read(_encoded: NDArray[np.uint8] = encoded) -> NDArray[np.uint8]:  # it keeps the file's memory alive
            handle = mine.handle
            if (
                parse(handle, address, size)
                or set_region(handle, area)
                or decode(handle, address, size, out_address, 0, pixel_format)
            ):
                text = self._error_text(handle).decode(errors="replace")
                mine.renew()
                raise SampleError(text)
            return out

        return read


def address_of(array: NDArray[np.uint8]) -> int:
    """Return where the array's memory begins, in a third of the time of ``array.ctypes.data``."""
    where: int = array.__array_interface__["data"][0]
    return where


class _PerThread(threading.local):
    """A decoder for each thread; it goes when the thread ends."""

    def __init__(self, create: Callable[..., Any], destroy: Callable[..., Any]) -> None:
        self.decoder = _Decoder(create, destroy)


class _Decoder:
    """A decoder's handle and memory for its pixels."""

    def __init__(self, create: Callable[..., Any], destroy: Callable[..., Any]) -> None:
        self._create, self._destroy = create, destroy
        self._memory = np.empty(0, np.uint8)
        self._address = 0
        self._pid = os.getpid()
        self.handle: int | None = None
        self.renew()

    def renew(self) -> None:
        """Take a new handle: after an error in a header the library (seen in 3.0) goes on in the middle of it."""
        self._free()
        self.handle = self._create(_DECOMPRESS)
        if not self.handle:
            raise MemoryError("libjpeg-turbo has no memory for a decoder")

    def memory(self, num_bytes: int) -> tuple[NDArray[np.uint8], int]:
        """Return at least so many bytes and their address; more than 16 MiB are not kept."""
        if num_bytes > _KEPT_BYTES:
            once = np.empty(num_bytes, np.uint8)
            return once, address_of(once)
        if num_bytes > len(self._memory):
            self._memory = np.empty(num_bytes, np.uint8)
            self._address = address_of(self._memory)
        return self._memory, self._address

    def _free(self) -> None:
        handle, self.handle = self.handle, None
        if handle:
            self._destroy(handle)

    def __del__(self, _getpid: Callable[[], int] = os.getpid) -> None:  # the module's names may be gone by now
        if _getpid() == self._pid:  # a fork drops those of its parent's threads, perhaps in the middle of their work
            self._free()


@functools.cache
def load() -> Turbo | None:
    """Return the first library that works, or None."""
    for path in _candidates():
        try:
            turbo = Turbo(path)
        except (OSError, AttributeError):
            continue
        if _agrees(turbo):
            return turbo
    return None


def _candidates() -> Iterator[str]:
    yield from _SYSTEM_NAMES
    for package, pattern in _CARRIERS:
        found = importlib.util.find_spec(package)
        for folder in (found and found.submodule_search_locations) or ():
            yield from map(str, sorted(Path(folder).glob(pattern)))


def _agrees(turbo: Turbo) -> bool:
    """Whether a part of a test picture comes out as simplejpeg decodes it."""
    simplejpeg = need("simplejpeg")
    y, x = np.mgrid[0:64, 0:96]
    pixels = np.stack([3 * y, 2 * x, (x * y) % 251], axis=-1).astype(np.uint8)
    file = simplejpeg.encode_jpeg(pixels, quality=90, colorsubsampling="420")
    try:
        out = turbo.reader(file, Window(17, 32, 30, 40), 3)()
    except SampleError:
        return False
    part = simplejpeg.decode_jpeg(file)[17:47, 32:72]
    return bool((out[:, 1:-1] == part[:, 1:-1]).all())
