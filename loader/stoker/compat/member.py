"""One worker process as its crew sees it."""

from __future__ import annotations

from typing import Any

from stoker.compat.wire import in_hand_text
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
        return f"{self} {ending}{in_hand_text(self.in_hand)}"

    def doing(self) -> str:
        """What it does, as far as can be told."""
        if self.is_lost:
            return f"{self} is gone"
        doing = in_hand_text(self.in_hand)
        ending = self.process.ending()
        if ending is not None:
            return f"{self} {ending}{doing}"
        if self.process.is_stopped():
            return f"{self} is stopped, by SIGSTOP or a debugger{doing}"
        if not self.in_hand:
            return f"{self} has nothing to do"
        stack = self.process.stack()
        if stack is None:  # it may have been stopped meanwhile
            return f"{self} does not say where it is{', since it is stopped' * self.process.is_stopped()}{doing}"
        return f"{self}{doing}, is here:\n{stack}"

    def is_active(self) -> bool:
        """Whether it has used the processor since the last call; True where that cannot be told."""
        before, self._cpu_s = self._cpu_s, self.process.cpu_s()
        return before is None or self._cpu_s is None or self._cpu_s != before
