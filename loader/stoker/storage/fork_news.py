"""Tells objects that hold locks that they are now in a forked child."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """Something whose locks another thread may hold at the moment of a fork; in the child nobody would release them."""

    def after_fork(self) -> None:
        """Make the locks anew; called in the child, whose only thread this is."""
        ...


_forkables: weakref.WeakSet[Forkable] = weakref.WeakSet()


def tell_after_fork(forkable: Forkable) -> None:
    """Call its ``after_fork`` in each child forked while it lives."""
    _forkables.add(forkable)


def _tell_all() -> None:
    for forkable in list(_forkables):
        forkable.after_fork()


os.register_at_fork(after_in_child=_tell_all)
