"""The end of what runs threads or processes, when its owner is forgotten or the interpreter exits."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol


class Closeable(Protocol):
    """What owns threads or processes, until it is closed; more than once does no harm."""

    def close(self) -> None: ...


_open: weakref.WeakKeyDictionary[Closeable, tuple[tuple[Closeable, ...], int]] = weakref.WeakKeyDictionary()
_last: list[Callable[[], None]] = []


def close_later(owner: object, what: Closeable, *first: Closeable) -> weakref.finalize[Any, Any]:
    """Close ``first``, then ``what``, when ``owner`` is forgotten, at the latest when this interpreter exits.

    None of them may refer to ``owner``.
    """
    _open[what] = (first, os.getpid())
    finalizer = weakref.finalize(owner, _hand_over, what, first, os.getpid())
    finalizer.atexit = False
    return finalizer


def at_last(close: Callable[[], None]) -> None:
    """Call ``close`` when this interpreter exits, after everything of :func:`close_later` is closed."""
    _last.append(close)


def _hand_over(what: Closeable, first: tuple[Closeable, ...], pid: int) -> None:
    """Close in a thread of its own, without waiting for it.

    The garbage collector calls this wherever it happens to run: in one of the threads that closing waits for, which
    cannot wait for itself, or under a lock that closing would need.
    """
    if os.getpid() == pid:  # a fork has none of the threads
        threading.Thread(target=_close, args=(what, first), name="stoker-leave", daemon=True).start()


def _close(what: Closeable, first: tuple[Closeable, ...]) -> None:
    for each in (*first, what):
        each.close()


@atexit.register
def _close_all() -> None:
    for what, (first, pid) in list(_open.items()):
        if os.getpid() == pid:
            _close(what, first)
    for close in _last:
        close()
