"""Samples whose making ends the process that does it, by functions of a user's."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import stoker
from stoker import ops

Function = Callable[[dict[str, Any]], dict[str, Any]]


def segfault() -> None:
    ctypes.string_at(0)


def by_signal() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def leave() -> None:
    os._exit(3)


def is_worker() -> bool:
    """Whether this is a worker process of a loader, and not the child in which a worker tries samples."""
    return "worker" in threading.main_thread().name


def hang() -> None:
    threading.Event().wait()


def dying_of(labels: set[int], how: Callable[[], None] = segfault) -> Function:
    """A function of the user's that ends its process at some samples."""

    def make(sample: dict[str, Any]) -> dict[str, Any]:
        if int(sample["cls"]) in labels:
            how()
        return sample

    return make


def failing_at(labels: set[int]) -> Function:
    """The same, with an ordinary error."""

    def make(sample: dict[str, Any]) -> dict[str, Any]:
        if int(sample["cls"]) in labels:
            raise ValueError("no")
        return sample

    return make


def numbers(shard: str, function: Function, **settings: Any) -> stoker.Pipeline:
    """Samples with a label, in small batches."""
    source = stoker.tar(shard, chunk_bytes=8192)
    return stoker.Pipeline(
        source,
        [ops.Label("cls"), ops.Map(function)],
        **{"batch_size": 4, "shuffle": True, "window": 2, "lanes": 2, **settings},
    )
