"""Threads for a burst of reads, which keep nobody from leaving."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LEAVE_S = 1.0
"""How long a ``with`` block that ends with an exception waits for what its threads have in hand."""


class DaemonPool(Executor):
    """At most ``num_threads`` threads that start when there is work and end when there is none.

    Unlike ThreadPoolExecutor's they are daemons, so a store that stalls delays neither Ctrl-C nor the interpreter's
    exit. A ``with`` block waits for all tasks, unless it ends with an exception: then those that have not begun are
    cancelled, and those that have are left alone after a second.
    """

    def __init__(self, num_threads: int, name: str) -> None:
        self._num_threads = num_threads
        self._name = name
        self._lock = threading.Lock()
        self._tasks: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._threads: set[threading.Thread] = set()
        self._num_started = 0
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError(f"the threads {self._name!r} were shut down")
            self._tasks.append((future, lambda: fn(*args, **kwargs)))
            if len(self._threads) < self._num_threads:
                self._start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; threads end with the last of those that were queued."""
        self._close(cancel=cancel_futures)
        if wait:
            self._join(None)

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close(cancel=exc_type is not None)
        self._join(None if exc_type is None else time.monotonic() + LEAVE_S)

    def _close(self, *, cancel: bool) -> None:
        with self._lock:
            self._closed = True
            cancelled = list(self._tasks) if cancel else []
            if cancel:
                self._tasks.clear()
        for future, _ in cancelled:
            future.cancel()

    def _join(self, deadline_s: float | None) -> None:
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(None if deadline_s is None else max(0.0, deadline_s - time.monotonic()))

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name=f"{self._name}-{self._num_started}", daemon=True)
        self._num_started += 1
        thread.start()
        self._threads.add(thread)

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._tasks:
                    self._threads.discard(threading.current_thread())
                    return
                future, call = self._tasks.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:  # noqa: BLE001  # it goes to whoever asks for the result
                    future.set_exception(error)
            del future, call
