"""What a process leaves behind: descriptors, processes."""

from __future__ import annotations

import gc
import os
import select
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Self


def open_fds() -> list[int]:
    """The descriptors of this process, in order; one of them is the listing's own.

    What other tests left is let go of first, or it might be meanwhile.
    """
    gc.collect()
    return sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir())


class Watch:
    """Processes whose end is waited for, whoever their parent is."""

    def __init__(self, pids: Iterable[int]) -> None:
        with ExitStack() as stack:
            self._pids = {}
            for pid in pids:
                fd = os.pidfd_open(pid)
                stack.callback(os.close, fd)
                self._pids[fd] = pid
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def left(self, timeout_s: float) -> list[int]:
        """Those that have not ended within this time."""
        deadline = time.monotonic() + timeout_s
        running = dict(self._pids)
        poll = select.poll()
        for fd in running:
            poll.register(fd, select.POLLIN)
        while running:
            ended = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
            if not ended:
                break
            for fd, _ in ended:
                poll.unregister(fd)
                del running[fd]
        return list(running.values())
