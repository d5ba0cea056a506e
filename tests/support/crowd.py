"""Readers of several workers at one store that refuses what is too much, under a clock of their own.

The limits of each worker, the dispatcher's budgets and the policy of retries are the real ones; the store, the time
and the network are simulated, so what is measured is the same on every machine.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from stoker.storage.limited import LOOK_S
from stoker.storage.rate import RateLimits, Turn
from stoker.storage.retry import RetryPolicy, wait_before_retry
from stoker_service.dispatcher.budgets import Budgets
from stoker_service.dispatcher.model import Settings, WorkerId

URL = "s3://bucket/train/0001.tar"
PREFIX = "s3://bucket/train"
BEAT_S = 1.0


@dataclass(slots=True)
class Store:
    """Serves ``limit`` requests a second, ``burst`` at once; refuses the others."""

    limit: float
    burst: float = 10.0
    tokens: float = 0.0
    at_s: float = 0.0

    def serves(self, now_s: float) -> bool:
        self.tokens = min(self.burst, self.tokens + (now_s - self.at_s) * self.limit)
        self.at_s = now_s
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True


@dataclass(frozen=True, slots=True)
class Answer:
    """How one request ended."""

    at_s: float
    worker: int
    is_served: bool


@dataclass(slots=True)
class Crowd:
    """``num_readers`` of each worker read without pause, each read a request of ``latency_s`` and its retries."""

    store: Store
    num_readers: Iterable[int]
    seed: int = 0
    latency_s: float = 0.05
    pause_s: float = 0.0
    has_dispatcher: bool = True
    now_s: float = 0.0
    answers: list[Answer] = field(default_factory=list)
    num_failed: int = 0
    limits: list[RateLimits] = field(init=False)
    budgets: Budgets = field(init=False)
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self.limits = []
        self.start_dispatcher()
        for worker, num_readers in enumerate(self.num_readers):
            self.limits.append(RateLimits(lambda: self.now_s))
            for _ in range(num_readers):
                self._at(self._chance.random() * 0.1, partial(self._begin, worker))
            self._at(self._chance.random() * BEAT_S, partial(self._beat, worker))
        self._at(BEAT_S / 4, self._tick)

    def start_dispatcher(self) -> None:
        """Another dispatcher, which knows nothing."""
        self.budgets = Budgets(Settings("first", beat_s=BEAT_S), self.now_s)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end_s = self.now_s + seconds
        while self._events and self._events[0][0] <= end_s:
            self.now_s, _, act = heapq.heappop(self._events)
            act()
        self.now_s = end_s

    def goodput(self, seconds: float, worker: int | None = None) -> float:
        """Requests served per second, of late."""
        return sum(answer.is_served for answer in self._late(seconds, worker)) / seconds

    def refused(self, seconds: float) -> float:
        """The refused part of the requests, of late."""
        late = self._late(seconds, None)
        return sum(not answer.is_served for answer in late) / max(1, len(late))

    def told(self) -> list[float]:
        """The limits that hold for the workers."""
        return [limits.limit_of(URL) for limits in self.limits]

    def _late(self, seconds: float, worker: int | None) -> list[Answer]:
        return [
            answer for answer in self.answers if answer.at_s > self.now_s - seconds and worker in (None, answer.worker)
        ]

    def _at(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_s + seconds, next(self._numbers), act))

    def _begin(self, worker: int) -> None:
        self._read(worker, 0, self.now_s)

    def _read(self, worker: int, num_attempts: int, begin_s: float) -> None:
        self._wait(worker, self.limits[worker].ask(URL), 0.0, num_attempts, begin_s)

    def _wait(self, worker: int, turn: Turn, waited_s: float, num_attempts: int, begin_s: float) -> None:
        """As LimitedStore waits."""
        wait_s = self.limits[worker].wait_for(turn)
        if wait_s == 0:
            self._at(self.latency_s / 2, lambda: self._arrive(worker, num_attempts, begin_s))
        elif waited_s + wait_s > RetryPolicy().attempt_s:
            self.limits[worker].give_up(turn)
            self._again(worker, num_attempts + 1, begin_s)
        else:
            slept_s = min(wait_s, LOOK_S)
            self._at(slept_s, lambda: self._wait(worker, turn, waited_s + slept_s, num_attempts, begin_s))

    def _arrive(self, worker: int, num_attempts: int, begin_s: float) -> None:
        is_served = self.store.serves(self.now_s)
        self._at(self.latency_s / 2, lambda: self._answered(worker, num_attempts, begin_s, is_served))

    def _answered(self, worker: int, num_attempts: int, begin_s: float, is_served: bool) -> None:
        self.limits[worker].answered(URL, is_throttled=not is_served)
        self.answers.append(Answer(self.now_s, worker, is_served))
        if is_served:
            self._at(self.pause_s, partial(self._begin, worker))
        else:
            self._again(worker, num_attempts + 1, begin_s)

    def _again(self, worker: int, num_attempts: int, begin_s: float) -> None:
        wait_s = wait_before_retry(
            RetryPolicy(),
            num_attempts=num_attempts,
            elapsed_s=self.now_s - begin_s,
            is_throttled=True,
            uniform=self._chance.random(),
        )
        if wait_s is None:
            self.num_failed += 1
            self._at(0.0, partial(self._begin, worker))
        else:
            self._at(wait_s, lambda: self._read(worker, num_attempts, begin_s))

    def _beat(self, worker: int) -> None:
        name = WorkerId(f"w{worker}")
        if self.has_dispatcher:
            self.budgets.beat(name, self.limits[worker].report(), self.now_s)
            self.limits[worker].set(self.budgets.limits_for(name))
        self._at(BEAT_S * (0.95 + 0.1 * self._chance.random()), lambda: self._beat(worker))

    def _tick(self) -> None:
        if self.has_dispatcher:
            self.budgets.decide([WorkerId(f"w{worker}") for worker in range(len(self.limits))], self.now_s)
        self._at(BEAT_S / 4, self._tick)

    def is_limited(self) -> bool:
        return any(limit < math.inf for limit in self.told())
