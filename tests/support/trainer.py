"""A trainer in a process of its own, which may be killed: ``Trainer(folder).begin(job)``.

It takes one job after another, so that a test pays for its start once. For each step it prints the batch's digest and
the state behind it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import stoker
from stoker.errors import StokerError
from support import programs
from support.cluster import DEADLINE_S, Child
from support.loading import load
from support.streams import batches_on, digest


@dataclass(frozen=True, slots=True)
class Job:
    """What a trainer is to do: ``num_steps`` steps, over as many epochs as it takes.

    ``service`` None is local mode. ``step_s`` is what a step of the training itself takes.
    """

    pipeline: str
    num_steps: int
    service: str | None
    rank: int = 0
    world_size: int = 1
    state: dict[str, Any] | None = None
    step_s: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """A step that was taken: what the batch was, the state behind it, how long it was waited for."""

    digest: str
    state: dict[str, Any]
    wait_s: float


class Trainer:
    """The process."""

    def __init__(self, folder: Path, name: str = "trainer"):
        self._folder, self._name = folder, name
        self.child = self._start()
        self.stats: dict[str, Any] = {}

    def begin(self, job: Job) -> None:
        """Let it begin a job; it must have none."""
        self.child.order(json.dumps(asdict(job)))

    def step(self, timeout_s: float = DEADLINE_S) -> Step | None:
        """The next step of the job; None at its end. AssertionError if it fails, or nothing comes for so long."""
        line = self.child.next_line(timeout_s)
        assert line is not None, f"the trainer is gone\n{self.child.log()}"
        said = json.loads(line)
        if "end" in said:
            self.stats = said["end"]
            return None
        assert "error" not in said, f"the trainer failed: {said['error']}\n{self.child.log()}"
        return Step(**said)

    def kill(self) -> list[Step]:
        """Kill -9, and start another that has no job yet; returns the steps that were taken and not asked for."""
        self.child.kill()
        left = [json.loads(line) for line in self.child.rest()]
        self.child.close()
        self.child = self._start()
        return [Step(**said) for said in left if "digest" in said]

    def close(self) -> None:
        self.child.close()

    def _start(self) -> Child:
        return Child(self._name, self._folder / f"{self._name}.log", "support.trainer", [], takes_orders=True)


def _train(job: Job) -> None:
    pipeline = stoker.Pipeline.from_json(job.pipeline)
    service = {} if job.service is None else {"service": job.service}
    pause = threading.Event()
    with load(pipeline, job.rank, job.world_size, **service, **job.options) as loader:
        if job.state is not None:
            loader.load_state_dict(job.state)
        begun_s = time.monotonic()
        for batch in batches_on(loader, job.num_steps):
            wait_s = time.monotonic() - begun_s
            programs.say(asdict(Step(digest(batch), loader.state_dict(), wait_s)))
            pause.wait(job.step_s)
            begun_s = time.monotonic()
        programs.say({"end": loader.stats()})


def _take_jobs() -> None:
    for line in sys.stdin:
        try:
            _train(Job(**json.loads(line)))
        except StokerError as error:
            programs.say({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    _take_jobs()
