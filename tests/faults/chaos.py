"""A cluster on which one schedule of faults after another is run."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, assert_never

import stoker
from faults import schedule as kinds
from faults.schedule import EPOCHS, NUM_WORKERS, Event, Schedule
from support.cluster import DEADLINE_S, LEASE_S, Child, Cluster, Worker
from support.proxy import run_proxies
from support.streams import assert_same_stream, local_stream, make_noise, make_pictures, noise, pictures
from support.trainer import Job, Step, Trainer

STALL_S = 40.0
"""A trainer that waits so long for one batch gives up and says what it waited for."""


@dataclass
class Rank:
    """One rank: what it took up to the last state that it saved, and since then."""

    trainer: Trainer
    whole: Job
    save_every: int
    saved: list[str] = field(default_factory=list)
    since: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    state: dict[str, Any] | None = None

    @property
    def num_taken(self) -> int:
        return len(self.saved) + len(self.since)

    def begin(self) -> None:
        """Let the trainer go on at the saved state."""
        self.since.clear()
        self.trainer.begin(replace(self.whole, state=self.state, num_steps=self.whole.num_steps - len(self.saved)))

    def advance(self) -> bool:
        """Wait for the next step; False at the end."""
        step = self.trainer.step(DEADLINE_S)
        if step is not None:
            self._take(step)
        return step is not None

    def die(self) -> None:
        """Kill the trainer, and let another go on."""
        for step in self.trainer.kill():
            self._take(step)
        self.begin()

    def _take(self, step: Step) -> None:
        self.since.append(step.digest)
        self.waits.append(step.wait_s)
        if self.num_taken % self.save_every == 0 or self.num_taken == self.whole.num_steps:
            self.saved += self.since
            self.since.clear()
            self.state = step.state


class Chaos:
    """The cluster, its proxies and its trainers. After a run that failed it must not be used again."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._shards, self._noise = make_pictures(folder / "shards"), make_noise(folder / "noise.tar")
        self._stack = contextlib.ExitStack()
        self._timers: list[threading.Timer] = []
        self._leaving: list[Worker] = []
        try:
            proxies = self._stack.enter_context(run_proxies())
            self.cluster = Cluster(folder, NUM_WORKERS, proxies=proxies)
            self._stack.callback(self.cluster.close)
            self._trainers: list[Trainer] = []
            for rank in range(2):
                trainer = Trainer(folder, f"trainer-{rank}")
                self._stack.callback(trainer.close)
                self._trainers.append(trainer)
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()
            timer.join()
        for worker in self._leaving:
            worker.close()
        self._stack.close()

    def logs(self) -> str:
        """The end of what each process wrote."""
        return "\n".join([self.cluster.logs(), *(trainer.child.log() for trainer in self._trainers)])

    def run(self, plan: Schedule) -> float:
        """Run a schedule, check what was consumed, and mend the cluster; returns the longest wait for one batch."""
        ranks = self._ranks(plan)
        for rank in ranks:
            rank.begin()
        left = list(plan.events)
        first = ranks[0]
        while first.advance():
            while left and first.num_taken >= left[0][0]:
                self._happen(left.pop(0)[1], ranks)
        for rank in ranks[1:]:
            while rank.advance():
                pass
        for rank in ranks:
            self._check(rank, plan)
        self._settle()
        return max(wait for rank in ranks for wait in rank.waits)

    def _ranks(self, plan: Schedule) -> list[Rank]:
        pipeline = self._pipeline(plan).to_json()
        options = {"in_order": plan.in_order, "prefetch_bytes": plan.prefetch_bytes, "timeout_s": STALL_S}
        jobs = [
            Job(pipeline, plan.num_steps, self.cluster.url, rank, plan.world_size, None, plan.step_s, options)
            for rank in range(plan.world_size)
        ]
        return [Rank(trainer, job, plan.save_every) for trainer, job in zip(self._trainers, jobs, strict=False)]

    def _pipeline(self, plan: Schedule) -> stoker.Pipeline:
        """Another one for each seed: no worker has its batches from the run before."""
        settings = {"batch_size": plan.batch_size, "lanes": plan.num_lanes, "seed": plan.seed}
        return noise(self._noise, **settings) if plan.is_large else pictures(self._shards, **settings)

    def _check(self, rank: Rank, plan: Schedule) -> None:
        job = rank.whole
        expected = local_stream(job.pipeline, job.num_steps, job.rank, job.world_size)
        if plan.in_order:
            assert_same_stream(rank.saved, expected)
            return
        num_steps = plan.num_steps // EPOCHS
        for start in range(0, plan.num_steps, num_steps):
            wrong = Counter(rank.saved[start : start + num_steps])
            wrong.subtract(expected[start : start + num_steps])
            assert not any(wrong.values()), {
                expected.index(item) if item in expected else item: count for item, count in wrong.items() if count
            }

    def _happen(self, event: Event, ranks: list[Rank]) -> None:
        workers, proxy = self.cluster.workers, self.cluster.proxy
        match event:
            case kinds.KillWorker(worker):
                self.cluster.bury(self.cluster.replace(worker))
            case kinds.TerminateWorker(worker):
                leaving = self.cluster.replace(worker)
                leaving.terminate()
                self._leaving.append(leaving)
            case kinds.FreezeWorker(worker, leases):
                self._freeze(workers[worker], leases)
            case kinds.KillDispatcher():
                self.cluster.begin_dispatcher()
            case kinds.FreezeDispatcher(leases):
                self._freeze(self.cluster.dispatcher, leases)
            case kinds.KillTrainer(rank):
                ranks[rank].die()
            case kinds.FreezeTrainer(rank, leases):
                self._freeze(ranks[rank].trainer.child, leases)
            case kinds.WorkerNetwork(worker, fault):
                found = workers[worker].proxy
                assert found is not None
                found.fail(fault)
            case kinds.DispatcherNetwork(fault):
                assert proxy is not None
                proxy.fail(fault)
            case _:
                assert_never(event)

    def _freeze(self, child: Child, leases: float) -> None:
        child.freeze()
        timer = threading.Timer(leases * LEASE_S, child.thaw)
        self._timers.append(timer)
        timer.start()

    def _settle(self) -> None:
        """End all faults, and wait until all workers are there again."""
        for timer in self._timers:
            timer.join()
        self._timers.clear()
        for proxy in [self.cluster.proxy, *(worker.proxy for worker in self.cluster.workers)]:
            assert proxy is not None
            proxy.heal()
        self.cluster.dispatcher.ready()
        for worker in self.cluster.workers:
            worker.ready()
        for worker in self._leaving:
            status = worker.wait()
            was_ready = worker.is_ready or bool(worker.rest())
            # One that was told to go while it was starting may not have listened yet.
            assert status == 0 or (status == -signal.SIGTERM and not was_ready), worker.log()
            self.cluster.bury(worker)
        self._leaving.clear()
        self.cluster.wait_for_workers(self.cluster.workers)
