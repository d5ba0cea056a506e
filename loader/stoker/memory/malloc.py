"""Keeps the C library from giving memory back to the system, for processes that are ours."""

from __future__ import annotations

import ctypes
import logging
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_MMAP_THRESHOLD_BYTES: Final = 1 << 30
_TRIM_THRESHOLD_BYTES: Final = (1 << 31) - 1

_LOG: Final = logging.getLogger("stoker")


def keep_memory() -> bool:
    """Have malloc keep what is freed for the next who asks; True if the C library has such a setting (glibc).

    gRPC takes and frees a buffer of a slice's size for each message; fetching its pages from the system each time costs
    more than the copy into it. It holds for the whole process, so never call this in a trainer.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    done = bool(mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)) and bool(
        mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)
    )
    if not done:
        _LOG.info("malloc took no settings: batches are sent more slowly")
    return done
