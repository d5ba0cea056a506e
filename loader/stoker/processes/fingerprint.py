"""Whether an object is still what it was."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from crc32c import crc32c

from stoker.processes.columns import Layout, columns_by_block, digest
from stoker.processes.parts import take_apart


def hash_of(value: Any, *, ships_modules: bool) -> bytes:
    """See :func:`stoker.processes.payload.fingerprint`. Raises whatever a part raises that cannot be pickled."""
    sink = _Hash()
    take_apart(value, sink, ships_modules=ships_modules)
    return sink.digest()


class _Hash:
    def __init__(self) -> None:
        self._hasher = blake2b(digest_size=16)

    def digest(self) -> bytes:
        return self._hasher.digest()

    def write(self, written: Any) -> None:
        self._hasher.update(written)

    def take_buffer(self, content: memoryview) -> None:
        # a checksum of 32 bits finds every change of up to 32 neighbouring bits, and all but one in 4e9 of others
        self._hasher.update(b"buffer" + bytes([content.readonly]) + _number(content.nbytes) + _number(crc32c(content)))

    def take_storage(self, content: memoryview) -> None:
        self.take_buffer(content)

    def take_list(self, items: Any, layout: Layout) -> None:
        self._hasher.update(repr(layout).encode())
        for columns in columns_by_block(items, layout):
            for column, kind in zip(columns, layout.kinds, strict=True):
                self._hasher.update(digest(column, kind))


def _number(value: int) -> bytes:
    return value.to_bytes(8, "little")
