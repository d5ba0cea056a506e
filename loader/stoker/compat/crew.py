"""Workers that fetch the samples of a torch dataset, wherever they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

Seeding: TypeAlias = Literal["worker", "sample"]
"""``"worker"``: each worker's generators are seeded once, as torch does; ``"sample"``: anew for each sample."""

CREW_GROUP = "stoker.crews"
"""The entry points of this group are :class:`OpenCrew`, each named after the scheme of the URLs that it opens."""


@dataclass(frozen=True, slots=True)
class Job:
    """One iteration over a loader, as its workers need it.

    ``goes_on``: the workers keep dataset, generators and all else of the last iteration, and only iterate the dataset
    anew (torch's ``persistent_workers``). Otherwise each gets a new copy of the dataset, is seeded with ``base_seed``
    plus its index, and calls ``worker_init_fn``, as if it had just been started.

    ``states`` has, for iterable datasets, where each worker goes on; empty: from the beginning. ``wants_state``: each
    batch of an iterable dataset comes with the state after it.
    """

    dataset: Any
    collate_fn: Callable[[Any], Any]
    worker_init_fn: Callable[[int], None] | None
    is_iterable: bool
    auto_collation: bool
    drop_last: bool
    base_seed: int
    seeding: Seeding
    num_workers: int
    goes_on: bool = False
    wants_state: bool = False
    states: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """One batch to fetch.

    ``keys`` is what the sampler gave: a list of keys with auto-collation, one key without. For iterable datasets it is
    a list of None, as long as the batch, or None.
    """

    batch_index: int
    keys: Any


@dataclass(frozen=True, slots=True)
class Made:
    """A batch is there; ``state`` is the worker's after it, if the job wants states.

    ``knows_workers``: the worker's user code has called ``torch.utils.data.get_worker_info()`` since it got its
    dataset.
    """

    worker_index: int
    batch_index: int
    value: Any
    state: Any = None
    knows_workers: bool = True


@dataclass(frozen=True, slots=True)
class Failed:
    """User code raised; ``error`` has the original type and text, the worker's trace and the sample as notes."""

    worker_index: int
    batch_index: int
    error: BaseException


@dataclass(frozen=True, slots=True)
class Ended:
    """The worker's iterable dataset has no more for this task, nor for later ones of this iteration.

    ``knows_workers``: see :class:`Made`.
    """

    worker_index: int
    batch_index: int
    knows_workers: bool = True


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker died, or cannot be reached; what it had not made is lost. ``cause`` names it and says how it ended.

    ``is_fault`` is False where none of its tasks is to blame: it left in good order, as a service's worker that drains,
    or was not heard of any more. Another one takes its place.
    """

    worker_index: int
    cause: str
    is_fault: bool = True


Event: TypeAlias = Made | Failed | Ended | Lost


class Crew(Protocol):
    """``num_workers`` workers, each of which fetches its tasks one by one, in the order given. For one thread.

    Only what was asked for since the last :meth:`begin` is told.
    """

    @property
    def num_workers(self) -> int:
        """How many there are; fixed."""

    def begin(self, job: Job) -> None:
        """Begin an iteration: all tasks of an earlier one are given up.

        Raises SpecError, at once, naming the part, if the dataset or a function cannot be sent to the workers.
        """

    def submit(self, worker_index: int, task: Task) -> None:
        """Give a worker a task. Does not block; a worker that is lost is told by :meth:`receive`."""

    def withdraw(self, worker_index: int, task: Task) -> bool:
        """Take a task back, so that another worker can get it; False if this crew cannot do that.

        A worker that has begun it makes it all the same, and it comes twice.
        """

    def receive(self, timeout_s: float) -> Event | None:
        """The next thing that happened; None if nothing did in time."""

    def replace(self, worker_index: int, state: Any = None) -> None:
        """Start another worker in the place of a lost one, with the current job, without tasks, from ``state`` on."""

    def waits_for(self, worker_index: int) -> str:
        """What a worker that does not answer is doing, as far as can be told: for the text of a stall."""

    def is_active(self, worker_index: int) -> bool:
        """Whether the worker has used the processor since the last call; True where that cannot be told."""

    def close(self) -> None:
        """End all workers within 2 s; harmless again, and from any thread."""


@dataclass(frozen=True, slots=True)
class CrewOptions:
    """What a service is asked for. ``job`` is the name that people see."""

    num_workers: int
    timeout_s: float
    job: str


class OpenCrew(Protocol):
    """Opens workers at a service. Raises what is wrong with the URL or the service."""

    def __call__(self, url: str, options: CrewOptions) -> Crew: ...
