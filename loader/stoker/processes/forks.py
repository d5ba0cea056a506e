"""What a process must not share with a child that it forks."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Closeable(Protocol):
    """What has descriptors of its own."""

    def close(self) -> object: ...


_own: weakref.WeakKeyDictionary[Closeable, int] = weakref.WeakKeyDictionary()


def close_in_child(what: Closeable) -> None:
    """Close ``what`` in every child that this process forks from now on: a copy of it would keep a connection open."""
    _own[what] = os.getpid()


def is_own(what: Closeable) -> bool:
    """Whether ``what`` was made by this process, not by the one that forked it."""
    return _own.get(what) == os.getpid()


def _close_inherited() -> None:
    for what, pid in list(_own.items()):
        if pid != os.getpid():
            what.close()


os.register_at_fork(after_in_child=_close_inherited)
