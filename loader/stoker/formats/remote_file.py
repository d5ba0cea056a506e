"""An object in a store as a seekable file, for readers that want one."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from stoker.formats.stores import Stores


class RemoteFile(io.RawIOBase):
    """Read-only; each read is one range request. Not for several threads at once."""

    def __init__(self, stores: Stores, url: str, size_bytes: int) -> None:
        super().__init__()
        self._stores = stores
        self._url = url
        self._size_bytes = size_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size_bytes}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        stop = self._size_bytes if size < 0 else min(self._position + size, self._size_bytes)
        if stop <= self._position:
            return b""
        found = self._stores.read(self._url, self._position, stop)
        self._position = stop
        whole = found.obj
        return whole if isinstance(whole, bytes) and len(whole) == len(found) else bytes(found)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        target = memoryview(buffer).cast("B")
        found = self.read(len(target))
        target[: len(found)] = found
        return len(found)
