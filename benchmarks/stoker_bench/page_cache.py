"""Makes local files cold: asks the kernel to forget their pages."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def forget(paths: Iterable[Path]) -> None:
    """Write back and drop the cached pages of these files; pages that another process maps stay."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
