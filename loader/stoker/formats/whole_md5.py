"""The MD5 of a shard that is read from front to back, beside the ETag that may be it."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from stoker.formats.window import Window

_MD5: Final = re.compile(r"[0-9a-f]{32}")


class WholeMd5:
    """Whether what was read of an object is what its ETag says, where that can be an MD5 (see storage/checksum.py).

    So a byte that is flipped on its way to the scan does not become a wrong checksum in the index for ever. Costs time
    only where the version looks like an MD5.
    """

    def __init__(self, version: str, size_bytes: int) -> None:
        self._expected = version if _MD5.fullmatch(version) else ""
        self._size_bytes = size_bytes
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._position = 0

    def add(self, position: int, body: memoryview) -> None:
        """The bytes from ``position`` on; a gap before them ends the sum."""
        if self._expected and position == self._position:
            self._md5.update(body)  # without the GIL
            self._position += len(body)

    def complete(self, window: Window) -> None:
        """Read what is left behind the scan, which may have ended at a flipped byte; not if something was left out."""
        while self._expected and self._position == window.end < self._size_bytes:
            window.at(self._position, 1)

    def found(self) -> str:
        """The MD5 of what was read, if it is not the one that is expected; else empty."""
        if not self._expected or self._position != self._size_bytes:
            return ""
        digest = self._md5.hexdigest()
        return digest if digest != self._expected else ""
