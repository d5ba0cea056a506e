"""One worker process as its crew sees it."""

from __future__ import annotations

from typing import Any

from stoker.compat.fetch import shortened
from stoker.processes.launch import WorkerProcess
from stoker.processes.lent import LentMemory


class Member:
    """A worker process, its memory, and the tasks that it has not answered."""

    def __init__(self, worker_index: int, process: WorkerProcess) -> None:
        self.worker_index = worker_index
        self.process = process
        self.channel = process.channel
        self.memory: LentMemory | None = None
        self.in_hand: dict[int, Any] = {}  # keys by batch index, in the order in which they were asked for
        self.cargo_version = 0  # of what it has; 0 is none
        self.is_lost = False
        self._cpu_s: float | None = None

    def __str__(self) -> str:
        return f"worker {self.worker_index} (pid {self.process.pid})"

    def take_returned(self) -> list[int]:
        """What of its memory the trainer has dropped since the last call."""
        return [] if self.memory is None else self.memory.take_returned()

    def lose(self, deadline_s: float, ending_s: float = 1.0) -> str:
        """Give the process up; returns what became of it, for people."""
        ending = self.process.ending(ending_s) or "hung up"
        self.is_lost = True
        self.process.close(deadline_s)
        return f"{self} {ending}{self._with_tasks()}"

    def doing(self) -> str:
        """What it does, as far as can be told."""
        if self.is_lost:
            return f"{self} is gone"
        ending = self.process.ending()
        if ending is not None:
            return f"{self} {ending}{self._with_tasks()}"
        is_idle = not self.in_hand
        stack = None if is_idle or self.process.is_stopped() else self.process.stack()
        if stack is not None:
            return f"{self}{self._with_tasks()}, is here:\n{stack}"
        if self.process.is_stopped():
            return f"{self} is stopped, by SIGSTOP or a debugger{self._with_tasks()}"
        return f"{self} has nothing to do" if is_idle else f"{self}{self._with_tasks()}, does not say where it is"

    def is_active(self) -> bool:
        """Whether it has used the processor since the last call; True where that cannot be told."""
        before, self._cpu_s = self._cpu_s, self.process.cpu_s()
        return before is None or self._cpu_s is None or self._cpu_s != before

    def _with_tasks(self) -> str:
        if not self.in_hand:
            return ", with nothing in hand"
        batch_index, keys = next(iter(self.in_hand.items()))
        is_iterable = keys is None or (isinstance(keys, list) and all(key is None for key in keys))
        samples = "" if is_iterable else f" (samples {shortened(keys)})"
        more = len(self.in_hand) - 1
        return f", with batch {batch_index}{samples} in hand{f' and {more} more to do' if more else ''}"
