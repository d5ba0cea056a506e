"""What the search for patterns needs of a store beyond ``Store``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from stoker.storage.store import ObjectInfo, Store

MAX_NAMES = 1000


class PeekingStore(Store, Protocol):
    """What ``open_store`` gives."""

    def list(self, prefix: str, *, max_depth: int | None = None) -> Iterator[ObjectInfo]:
        """As ``Store.list``; what lies more than ``max_depth`` folders below the prefix's folder may be left out."""
        ...

    def peek(self, folder: str) -> Sequence[str]:
        """Some names (1000 at most) below a folder whose URL ends with a slash; cheap, and empty if it is not there."""
        ...
