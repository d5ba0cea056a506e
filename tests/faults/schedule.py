"""What goes wrong in one run of chaos, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from support.proxy import BlackHole, Cut, Delay, Drop, Fault, Refuse

NUM_WORKERS = 3
EPOCHS = 2
STEPS_PER_EPOCH = 60
"""Steps of one rank, of one: with two ranks each has half."""


@dataclass(frozen=True, slots=True)
class KillWorker:
    """Kill -9; another worker is started at once."""

    worker: int


@dataclass(frozen=True, slots=True)
class TerminateWorker:
    """SIGTERM; another worker is started at once."""

    worker: int


@dataclass(frozen=True, slots=True)
class FreezeWorker:
    """SIGSTOP, then SIGCONT after so many leases."""

    worker: int
    leases: float


@dataclass(frozen=True, slots=True)
class KillDispatcher:
    """Kill -9; another one is started at the same address at once."""


@dataclass(frozen=True, slots=True)
class FreezeDispatcher:
    """SIGSTOP, then SIGCONT after so many leases."""

    leases: float


@dataclass(frozen=True, slots=True)
class KillTrainer:
    """Kill -9 of a rank; another one goes on from the last state that was saved."""

    rank: int


@dataclass(frozen=True, slots=True)
class FreezeTrainer:
    """SIGSTOP of a rank, then SIGCONT after so many leases."""

    rank: int
    leases: float


@dataclass(frozen=True, slots=True)
class WorkerNetwork:
    """What lies before a worker fails."""

    worker: int
    fault: Fault


@dataclass(frozen=True, slots=True)
class DispatcherNetwork:
    """What lies before the dispatcher fails, for clients and workers."""

    fault: Fault


Event = (
    KillWorker
    | TerminateWorker
    | FreezeWorker
    | KillDispatcher
    | FreezeDispatcher
    | KillTrainer
    | FreezeTrainer
    | WorkerNetwork
    | DispatcherNetwork
)


@dataclass(frozen=True, slots=True)
class Schedule:
    """One run: the job, and the events by the step of rank 0 after which they happen.

    ``save_every``: steps from one saved state to the next. ``is_large``: batches of 256 KiB rather than 7 KB.
    """

    seed: int
    batch_size: int
    num_lanes: int
    world_size: int
    in_order: bool
    step_s: float
    save_every: int
    prefetch_bytes: int
    is_large: bool
    events: tuple[tuple[int, Event], ...]

    @property
    def num_steps(self) -> int:
        """Steps of each rank."""
        return EPOCHS * STEPS_PER_EPOCH // self.world_size


def draw(seed: int) -> Schedule:
    """The schedule of a seed; the same in every process."""
    chance = random.Random(seed)
    world_size = chance.choice([1, 1, 2])
    is_large = chance.random() < 0.4
    last = EPOCHS * STEPS_PER_EPOCH // world_size - 10
    events = [(chance.randrange(1, last), _event(chance, world_size)) for _ in range(chance.randint(1, 4))]
    return Schedule(
        seed=seed,
        batch_size=4,
        num_lanes=chance.choice([1, 3, 8, 8]),
        world_size=world_size,
        in_order=chance.random() < 0.75,
        step_s=chance.choice([0.0, 0.005, 0.01]),
        save_every=chance.choice([1, 5, 20]),
        prefetch_bytes=chance.choice([1, 64 << 10, 256 << 10]) * (8 if is_large else 1),
        is_large=is_large,
        events=tuple(sorted(events, key=lambda event: event[0])),
    )


def _event(chance: random.Random, world_size: int) -> Event:
    worker = chance.randrange(NUM_WORKERS)
    leases = chance.uniform(0.5, 2.0)
    makers: list[tuple[int, Callable[[], Event]]] = [
        (4, lambda: KillWorker(worker)),
        (2, lambda: TerminateWorker(worker)),
        (2, lambda: FreezeWorker(worker, leases)),
        (2, KillDispatcher),
        (1, lambda: FreezeDispatcher(leases)),
        (2, lambda: KillTrainer(chance.randrange(world_size))),
        (1, lambda: FreezeTrainer(chance.randrange(world_size), leases)),
        (4, lambda: WorkerNetwork(worker, _fault(chance))),
        (2, lambda: DispatcherNetwork(_fault(chance))),
    ]
    (make,) = chance.choices([make for _, make in makers], [weight for weight, _ in makers])
    return make()


def _fault(chance: random.Random) -> Fault:
    for_s = chance.uniform(0.1, 1.5)
    faults: list[Fault] = [Cut(), Delay(chance.uniform(0.001, 0.05)), Drop(), BlackHole(for_s), Refuse(for_s)]
    return chance.choice(faults)
