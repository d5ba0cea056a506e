"""The end of engines whose loader is forgotten or whose interpreter exits."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import Any

from stoker.engine.engine import Engine
from stoker.engine.retries import RetryTally

_open: weakref.WeakKeyDictionary[Engine, tuple[RetryTally, int]] = weakref.WeakKeyDictionary()


def close_later(owner: object, engine: Engine, tally: RetryTally) -> weakref.finalize[Any, Any]:
    """Close ``engine`` when ``owner`` is forgotten, at the latest when this process's interpreter exits."""
    _open[engine] = (tally, os.getpid())
    finalizer = weakref.finalize(owner, _hand_over, engine, tally, os.getpid())
    finalizer.atexit = False
    return finalizer


def _hand_over(engine: Engine, tally: RetryTally, pid: int) -> None:
    """Close in a thread of its own, without waiting for it.

    The garbage collector calls this wherever it happens to run: in one of the engine's own threads, which cannot wait
    for itself, or under a lock that closing would need.
    """
    if os.getpid() == pid:  # a fork has none of the engine's threads
        threading.Thread(target=_close, args=(engine, tally), name="stoker-leave", daemon=True).start()


def _close(engine: Engine, tally: RetryTally) -> None:
    tally.close()
    engine.close()


@atexit.register
def _close_all() -> None:
    for engine, (tally, pid) in list(_open.items()):
        if os.getpid() == pid:
            _close(engine, tally)
